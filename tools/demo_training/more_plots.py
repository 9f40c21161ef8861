"""The plots of the tales, second third; `plots.py` says what the placeholders mean."""

from __future__ import annotations

from demo_training.cast import YOUNG_ADJECTIVES
from demo_training.plots import Plot

MUSIC = Plot(
    "music",
    ("drum", "flute", "horn", "bell"),
    (
        ("{intro}",),
        (
            "All day long {he} played, but it did not sound good.",
            "{He} wanted to play the most beautiful song in the world.",
            "{He} played it every day, from morning until night.",
        ),
        (
            '"Stop that noise!" cried the neighbors.',
            '"What a terrible noise!" said the neighbors.',
            "The neighbors did not like it. They closed their windows.",
        ),
        (
            "So {A} took the {thing} and went far away, up on a hill.",
            "{A} was sad, and {he} went to play alone on the hill.",
        ),
        (
            "There {a_friend} named {B} sat down and listened.",
            "{A_friend} named {B} heard {him} there and came every day to listen.",
        ),
        (
            "",
            '"Play it again," said {B}. "I like it."',
            '"You play better every day," said {B}.',
            '"Do not give up," said {B}. "It takes time."',
        ),
        (
            "{Day} a thick fog came, and nobody could find the way home.",
            "Then came a dark night, and the children were lost in the forest.",
            "Then a snow storm came, and the neighbors lost their way.",
        ),
        (
            "",
            '"Play, {A}!" cried {B}. "Play as loud as you can!"',
            '"Take your {thing}!" said {B}. "They will hear you."',
            '"If they hear the {thing}, they can find us," said {B}.',
        ),
        (
            "{A} played and played, and one by one they came out of the dark.",
            "So {A} played the {thing}, and everybody followed the sound and came home.",
            "{A} stood on the hill and played until all of them were safe.",
        ),
        (
            "",
            "After that nobody ever called it a noise again.",
            "Now the neighbors opened their windows when {A} played.",
            "The neighbors thanked {A}, and {he} played while {B} danced.",
        ),
        (
            '"I heard it first," said {B}, and {A} laughed.',
            "And {B} was always the first to listen.",
            "From that day on they played and danced every evening.",
        ),
    ),
)

GROW = Plot(
    "grow",
    ("rose", "sunflower", "pumpkin", "apple tree"),
    (
        (
            "{Day} {he} found a small brown seed.",
            "{Day} an old woman gave {him} a seed.",
            "{Day} {he} found a little seed on the path.",
        ),
        (
            '"What will it be?" asked {A}, and {he} put it into the ground.',
            "{A} put it into the ground and gave it some water.",
            "{He} put it into the earth and waited.",
        ),
        (
            "The next day {he} looked, but there was nothing.",
            "{He} looked every hour, but nothing came up.",
            "{He} waited one day and two days, and nothing came up.",
        ),
        (
            '"It is a bad seed," said {A}. {A_friend} named {B} heard {him} and came near.',
            "{A} wanted to give up. Then {a_friend} named {B} looked over the fence.",
            '"I have no luck," said {A} to {his} neighbor, {a_friend} named {B}.',
        ),
        (
            '"You must wait," said {B}. "Good things grow slowly."',
            '"Give it water and give it time," said {B}.',
            '"A seed sleeps before it wakes," said {B}. "I will wait with you."',
        ),
        (
            "",
            "So every morning {A} brought water, and every evening {B} sang to it.",
            "They sat beside it, in the sun and in the rain, and told each other stories.",
            "So they waited together, and they were never bored.",
        ),
        (
            "",
            "Then, one morning in spring, a little green leaf came up.",
            "And one day there was a tiny green leaf.",
        ),
        (
            "It grew and grew, until it was {a_thing}.",
            "It grew all summer long, and it became {a_thing}.",
        ),
        (
            "",
            '"It is the most beautiful {thing} in the world!" cried {A}.',
            '"Look, {B}!" cried {A}. "We did it!"',
            "Everybody came to see the {thing}.",
        ),
        (
            "{A} gave the first seed to {B}, and soon there were two.",
            '"And the best of it was the waiting," said {A}, "because you were with me."',
            "So {A} learned to wait, and {B} was {his} friend for ever.",
            "And each year they put a new seed into the ground together.",
        ),
    ),
)

LIGHT = Plot(
    "light",
    ("lantern", "lamp", "candle"),
    (
        (
            "{His} best friend was {a_friend} named {B}, who lived on the other side of the hill.",
            "{A} had a friend, {a_friend} named {B}, who lived far away behind the hill.",
        ),
        (
            "{Day} in winter {B} wanted to visit {him}.",
            "{Day} {B} was on the way to visit {him}.",
        ),
        (
            "But it began to snow, and soon it was dark.",
            "But a great storm came, and the night was black.",
            "But a thick fog came down, and nobody could see the road.",
        ),
        (
            "",
            "{A} looked out of the window. {B} did not come.",
            "{A} waited and waited, but {B} did not come.",
        ),
        (
            "",
            '"{B} is lost," thought {A}. "I must help {him2}."',
            '"I must do something," said the {hero}.',
        ),
        (
            "{A} took {his} {full} and put it in the window.",
            "{A} was afraid of the dark, but {he} took {his} {full} and went out into the night.",
            "So {A} took {a_thing}, went up on the hill and held it high.",
        ),
        (
            "Far away in the dark {B} saw a little light.",
            "{B} was sitting under a tree, cold and tired. Then {he2} saw a small light far away.",
        ),
        (
            "",
            '"That must be {A}!" {he2} cried, and {he2} walked on, step by step.',
            '"Now I know the way," said {B}, and {he2} got up again.',
        ),
        (
            "At last {he2} stood at the door, white with snow.",
            "At last the two friends found each other.",
            "Before midnight {B} was safe in the warm house.",
        ),
        (
            "",
            "They sat by the fire and ate {food}.",
            "{A} gave {him2} a blanket and {food}.",
        ),
        (
            '"Your {thing} saved me," said {B}. "No," said {A}, "we saved each other."',
            "And every night since then {A} has thought of everybody who is lost in the dark.",
            '"One small {thing} is enough," said {B}, "when a friend is near it."',
            "From that night on {A} was never afraid of the dark again.",
        ),
    ),
    {"food": ("hot soup", "warm bread", "bread and honey", "apple pie")},
    hero_not=frozenset({"night"}),
    friend_not=frozenset({"night"}),
    friend=YOUNG_ADJECTIVES,
)

MOON = Plot(
    "moon",
    ("well", "pond", "lake", "river"),
    (
        (
            "One night {he} came to {a_thing} and looked into the water.",
            "One night {he} was thirsty and went to {a_thing}.",
            "One night {he} could not sleep and walked to {a_thing}.",
        ),
        (
            "There, deep in the {thing}, {he} saw something round and white.",
            "In the water {he} saw something round and yellow.",
        ),
        (
            '"{Oh}" said {A}. "It is {what}!"',
            '"That must be {what}," thought {A}.',
        ),
        (
            "{He} tried to pull it out, but it broke into a hundred pieces.",
            "{He} put a bucket into the water, but there was only water in it.",
            "{He} reached into the water, but {he} could not take hold of it.",
        ),
        (
            "",
            "{A} tried again and again until {he} was wet and cold.",
            "All night long {he} tried, and {he} became more and more angry.",
        ),
        (
            "{A_friend} named {B} heard the noise and came near.",
            "Then {a_friend} named {B} came by and stopped to look.",
        ),
        (
            "",
            '"There is {what} in the {thing}," said {A}, "and I cannot get it out."',
            '"Help me to get {what} out of the {thing}," said {A}.',
        ),
        (
            '"Look up," said {B}. {A} looked up, and there was the moon.',
            '{B} smiled. "Look at the sky," said the {kind2}. There stood the big round moon.',
        ),
        (
            '"How silly I am!" cried {A}, and they both laughed.',
            "Then {A} began to laugh, and {B} laughed too.",
            '"I wanted to eat the moon!" cried {A}, and they laughed until they cried.',
        ),
        (
            "",
            "They sat by the {thing} until morning and looked at the moon together.",
            "{B} had bread in {his2} bag, and they shared it in the light of the moon.",
            "After that they came to the {thing} whenever the moon was round.",
        ),
        (
            "And from that night on they were friends.",
            'And {A} said, "I did not find {what}, but I found you."',
            "So {A} learned to look twice before {he} believed {his} eyes.",
        ),
    ),
    {"what": ("a big white cheese", "a silver plate", "a golden ball"), "oh": ("what luck!", "how beautiful!", "oh!")},
)

GIFT = Plot(
    "gift",
    ("coat", "blanket", "scarf", "hat", "basket", "kite", "drum"),
    (
        (
            "{A} had a friend, {a_friend} named {B}.",
            "{His} best friend was {a_friend} named {B}.",
        ),
        (
            "Soon it would be {his2} birthday, and {A} wanted to make {him2} a gift.",
            "{A} wanted to give {him2} something for {his2} birthday.",
        ),
        (
            '"I will make {a_thing}," said {A}, and {he} began at once.',
            "So {he} began to make {a_thing}.",
            '"I know it!" said {A}. "I will make {him2} {a_thing}."',
        ),
        (
            "",
            "Every evening {he} worked on it, and nobody was allowed to see it.",
            "{He} worked from morning until night, and {he} told nobody.",
        ),
        (
            "But the {thing} became too small and a little crooked.",
            "But when it was done, the {thing} was crooked and had a hole.",
            "But it was not as fine as {A} had hoped.",
        ),
        (
            '"It is the ugliest {thing} in the world," said {A}, and {he} was sad.',
            '"I cannot give it to anybody," thought {A}, and {he} hid it under the bed.',
        ),
        (
            "",
            "On the birthday {he} came without a gift and with a red face.",
            "The birthday came, and {A} did not dare to go.",
        ),
        (
            '"What is the matter?" asked {B}, and {A} told {him2} everything.',
            "{B} came to look for {him}, and so {he2} found the {thing}.",
        ),
        (
            '"Did you make this for me?" asked {B}. "It is wonderful!"',
            '"You made it for me!" cried {B}. "That is the best gift of all."',
        ),
        (
            "",
            "{B} would not give it away for all the gold in the world.",
            "{B} showed it to everybody and was very proud of it.",
            "And {B} kept the {thing} for many, many years.",
        ),
        (
            "Then {A} understood that a gift comes from the heart.",
            "And the two friends danced and sang until the stars came out.",
            "And {A} was the happiest {kind} of all.",
        ),
    ),
)

QUARREL = Plot(
    "quarrel",
    ("ball", "kite", "drum", "boat", "apple", "pear", "hat", "pumpkin", "basket", "book"),
    (
        (
            "Every day {he} played with {a_friend} named {B}.",
            "{His} best friend was {a_friend} named {B}.",
        ),
        (
            "{Day} they found {a_thing} on the road.",
            "{Day} they both saw {a_thing} under a tree.",
        ),
        (
            '"It is mine!" cried {A}. "I saw it first!"',
            '"I saw it first, so it is mine," said {A}.',
        ),
        (
            '"No, it is mine!" cried {B}.',
            '"But I picked it up!" said {B}. "It is mine."',
        ),
        (
            "",
            "{A} pulled on one side, and {B} pulled on the other.",
            "They pulled and pulled, and neither would let go.",
        ),
        (
            "Then the {thing} slipped away and fell into the river.",
            "Suddenly neither of them had it, and the {thing} fell into the brook.",
        ),
        (
            "",
            "The water carried it away, and the two looked at each other.",
            "Away it went with the water, and now nobody had it.",
        ),
        (
            '"I am sorry," said {A}. "I am sorry too," said {B}.',
            '"How silly we are," said {A}. "We could have shared it," said {B}.',
        ),
        (
            "They ran along the water, and together they pulled the {thing} out.",
            "Together they took a long branch and fished the {thing} out again.",
            "So they ran after it, and {B} held {A} while {he} reached for it.",
        ),
        (
            "",
            "Now the {thing} was for both of them, and nobody was angry.",
            '"It shall be our {thing}," said {A}, and {B} was glad.',
        ),
        (
            '"A friend is more than {a_thing}," said {A}.',
            "Since that day they have shared everything.",
            "And they never quarreled about such a thing again.",
            "That evening {A} and {B} sat side by side and laughed about it.",
        ),
    ),
    friend=YOUNG_ADJECTIVES,
)
