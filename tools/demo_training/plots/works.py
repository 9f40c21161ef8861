"""Something is made, mended, grown or learned. See `plot.py` for the placeholders."""

from __future__ import annotations

from demo_training.plots.plot import Plot

MEND = Plot(
    "mend",
    ("bridge", "gate", "mill", "boat", "cart", "clock", "well"),
    (
        ("{intro}",),
        (
            "{Day} there was a great storm, and in the morning the {thing} was broken.",
            "Then a great wind came in the night, and it broke the {thing}.",
            "But {day} a big stone rolled down the hill and broke the {thing}.",
        ),
        (
            "",
            '"Nobody can mend it," said the neighbors, and they went home.',
            "All the neighbors were sad, but nobody knew what to do.",
            '"The {thing} is too old," said the neighbors. "Let it be."',
        ),
        (
            "But {A} did not give up. {He} took {his} tools and began to work.",
            '"I will try," said {A}, and {he} began to work all alone.',
            "Only {A} did not go away. {He} took a hammer and some nails and began.",
        ),
        (
            "It was too much work for one {kind}. Then {a_friend} named {B} came by.",
            "The work was hard, and soon {he} was tired. Then {a_friend} named {B} stopped to look.",
            "The {hero} worked and worked, but it was slow. {A_friend} named {B} saw {him}.",
        ),
        (
            "",
            '"May I help you?" asked {B}. "Oh yes, please," said {A}.',
            '"Two are faster than one," said {B}. "Let me help."',
            '"You hold it, and I will use the hammer," said {B}.',
        ),
        (
            "They worked side by side, and {B} sang a merry song.",
            "So they worked together from morning until evening.",
            "{A} held the wood, {B} drove in the nails, and they sang as they worked.",
        ),
        (
            "On the third day the {thing} was as good as new.",
            "When the sun went down, the {thing} was mended.",
            "At last the {thing} was better than before.",
        ),
        (
            "",
            "All the neighbors came to see it, and they brought {food} for {A} and {B}.",
            "The neighbors were glad, and they gave the two friends {food}.",
            "That evening everybody danced and sang and ate {food}.",
        ),
        (
            '"Alone I could not do it," said {A}, "but with a friend it was easy."',
            "And whenever something broke, {A} and {B} mended it together.",
            "Since then {A} and {B} have been the best of friends.",
            "And so they learned that nothing is too hard for two.",
        ),
    ),
    {"food": ("warm bread", "apple pie", "bread and honey", "a big cake", "hot soup")},
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
