"""Something is lost, found, or found to be shared. See `plot.py` for the placeholders."""

from __future__ import annotations

from demo_training.cast import YOUNG_ADJECTIVES
from demo_training.plots.plot import Plot

LOST = Plot(
    "lost",
    ("hat", "bell", "key", "ring", "drum", "kite", "flute", "ball", "scarf", "book", "coin", "crown", "map", "horn", "lantern"),
    (
        ("{intro}",),
        (
            "But {day} the {thing} was gone.",
            "But {day} {he} could not find the {thing} anywhere.",
            "{Day} {he} came home and saw that the {thing} was gone.",
            "But {day}, on a long walk, {he} lost it.",
        ),
        (
            "",
            "{He} looked under the bed and behind the door, but it was not there.",
            "{He} looked in every corner, but {he} could not find it.",
            "{A} looked for it the whole day and found nothing.",
            "{He} looked here and {he} looked there, but the {thing} was nowhere.",
        ),
        (
            "{A} sat down on a stone and cried. Just then {a_friend} named {B} came along.",
            "The {hero} was very sad. Then {a_friend} named {B} came down the path.",
            "{He} sat under a tree and cried. {A_friend} named {B} heard {him} and came near.",
        ),
        (
            "",
            '"What is the matter?" asked {B}.',
            '"Why are you so sad?" asked {B}.',
            '"Can I help you?" asked the {kind2}.',
        ),
        (
            '"I have lost my {thing}," said {A}.',
            '"My {full} is gone," said the {kind}.',
            '"I cannot find my {thing}," said {A}.',
        ),
        (
            "",
            '"Do not cry," said {B}. "We will look for it together."',
            '"Two can see more than one," said {B}. "I will help you."',
            '"Then let us go and look for it," said {B}.',
        ),
        (
            "They walked back along the path, and there, {spot}, lay the {thing}.",
            "They looked all day long, and at last {B} found the {thing} {spot}.",
            "{B} looked very carefully, and there was the {thing}, {spot}.",
        ),
        (
            "",
            '"Thank you, {B}!" cried {A}, and {he} danced for joy.',
            "{A} laughed for joy and thanked {his} new friend.",
            '"You found it!" cried {A}, and {he} was happy again.',
        ),
        (
            "From that day on {A} took good care of the {thing}, and {B} was {his} best friend.",
            "{A} had lost {a_thing} and found a friend, and that was even better.",
            "Now {A} had {his} {thing} again, and a good friend too.",
            "Since that day {A} and {B} have always walked together.",
        ),
    ),
    {"spot": ("in the tall grass", "under a bush", "beside the brook", "between the roots of a tree", "behind a big stone")},
)

FOUND = Plot(
    "found",
    ("key", "ring", "coin", "map", "crown", "book", "bell", "flute", "basket", "horn"),
    (
        (
            "{Day} {he} found {a_thing} {spot}.",
            "{Day}, {spot}, {he} found {a_thing}.",
            "{Day} {he} went for a walk and found {a_thing} {spot}.",
        ),
        (
            '"How beautiful it is!" said {A}. "But whose is it?"',
            '"I would like to keep it," thought {A}, "but it is not mine."',
            "{A} wanted to keep it, but {he} knew that somebody had lost it.",
        ),
        (
            "So {he} went from door to door and asked everybody.",
            "So {he} asked everybody on the road.",
            "{He} asked all the neighbors, one after the other.",
        ),
        (
            "",
            '"It is not mine," said one. "It is not mine," said another.',
            "But nobody knew whose {thing} it was.",
            "They all shook their heads.",
        ),
        (
            "In the evening {he} met {a_friend} named {B}, who was crying.",
            "At last {he} came to {a_friend} named {B}, who looked very sad.",
            "Then {he} heard somebody crying. It was {a_friend} named {B}.",
        ),
        (
            '"I have lost my {thing}," said {B}. "It was a gift from my grandmother."',
            '"My {full} is gone," said {B}. "I have looked for it all day."',
            '"Why are you sad?" asked {A}. "I have lost my {thing}," said {B}.',
        ),
        (
            '"Is this your {thing}?" asked {A}.',
            'Then {A} smiled and said, "Here it is!"',
            "{A} held out the {thing} and said nothing.",
        ),
        (
            "",
            '"Yes, yes!" cried {B}, and {he2} jumped for joy.',
            "{B} could not believe it. {He2} laughed and cried at the same time.",
            '"You found it!" cried {B}. "How can I thank you?"',
        ),
        (
            "",
            "{B} asked {A} to come in, and they ate {food} together.",
            "To thank {him}, {B} gave {A} {food}.",
            "Then {B} shared {his2} supper with {A}.",
        ),
        (
            "{A} had given away {a_thing}, but {he} had found a friend.",
            "And {A} was happier than if {he} had kept the {thing}.",
            '"An honest friend is better than gold," said {B}, and they were friends for ever.',
            "From that day on {A} and {B} were the best of friends.",
        ),
    ),
    {
        "spot": ("in the tall grass", "under a bush", "beside the brook", "on the path", "behind a big stone"),
        "food": ("warm bread", "apple pie", "bread and honey", "sweet cake", "hot soup"),
    },
)

SHARE = Plot(
    "share",
    ("cake", "apple", "pie", "pear", "pumpkin"),
    (
        (
            "{Day} {his} grandmother gave {him} {a_thing}.",
            "{Day} {he} got {a_thing} for {his} birthday.",
            "{Day} {he} bought {a_thing} with {his} last coin.",
        ),
        (
            "",
            '"I will eat it all alone," thought {A}, and {he} went home quickly.',
            "{A} was very hungry, and {he} looked for a quiet place to eat it.",
        ),
        (
            "But on the way {he} met {a_friend} named {B}, who had eaten nothing all day.",
            "But by the road sat {a_friend} named {B}, who was thin and hungry.",
        ),
        (
            "",
            '"What a beautiful {thing}!" said {B}.',
            '"That {thing} smells so good," said {B}.',
            '"Please, can you give me a little of your {thing}?" asked {B}.',
        ),
        (
            "",
            "First {A} wanted to say no. The {thing} was not so very big.",
            '"It is mine," thought {A}, and {he} walked on. But then {he} stopped.',
            "{A} looked at the {thing}, and then {he} looked at {B}.",
        ),
        (
            '"Come and sit down," said {A}. "Half of it is for you."',
            'Then {A} cut the {thing} in two and said, "Eat with me."',
        ),
        (
            "",
            "They sat in the grass and ate, and no {thing} had ever been so good.",
            "They ate it together, and {B} smiled with every bite.",
        ),
        (
            "{Later} the winter came, and it was long and cold. {A} had nothing left to eat.",
            "That autumn a storm took the roof from {his} house, and {A} had no place to sleep.",
        ),
        (
            "Then somebody knocked at the door. It was {B} with {basket}.",
            "But {B} had not forgotten {him}. {He2} came through the snow with {basket}.",
        ),
        (
            '"You shared with me," said {B}. "Now I share with you."',
            '"Half of it is for you," said {B}, and they both laughed.',
        ),
        (
            "So {A} learned that what you give comes back to you.",
            "And since then the two friends have shared everything.",
            "And they sat together and were happy.",
        ),
    ),
    {"basket": ("a basket full of bread", "a big pot of soup", "bread, honey and nuts"), "later": ("Then", "Later")},
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
