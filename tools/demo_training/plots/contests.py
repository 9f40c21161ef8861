"""A race, a boast, a riddle. See `plot.py` for the placeholders."""

from __future__ import annotations

from demo_training.plots.plot import Plot

RACE = Plot(
    "race",
    ("hill", "oak", "mill", "bridge", "lake", "tower", "gate", "well", "pond"),
    (
        (
            "{A} was very fast, and {he} liked to say so.",
            "{A} could run like the wind, and {he} was proud of it.",
            "Nobody could run as fast as {A}, and {he} told everybody.",
        ),
        (
            "{Day} {he} met {a_friend} named {B}.",
            "{Day} {a_friend} named {B} came to visit.",
            "{Day} {he} saw {a_friend} named {B} on the road.",
        ),
        (
            '"Let us race to the {full}," said {A}. "I will win!"',
            '"I can run to the {full} before you count to ten," said {A}. "Shall we race?"',
            '"Do you see the {full}?" asked {A}. "I will be there long before you."',
        ),
        (
            "",
            '"We shall see," said {B}, and off they went.',
            '"I am not so fast," said {B}, "but I will try."',
            '"Very well," said {B}. "One, two, three, go!"',
        ),
        (
            "{A} was far in front. But then {he} heard a cry behind {him}.",
            "Soon {A} was far away. Then {he} heard {B} call for help.",
            "{A} could already see the {thing} when {he} heard a cry.",
        ),
        (
            "{B} had fallen over a stone and had hurt {his2} leg.",
            "{B} had fallen into a hole and could not get out.",
            "{B} had stepped on a thorn and could not walk.",
        ),
        (
            "{A} looked at the {thing}. It was so near! But {he} turned around and ran back.",
            "The {kind} wanted to win, but {he} could not leave {B} alone. So {he} went back.",
            "For a moment {he} wanted to run on. Then {he} turned around.",
        ),
        (
            "",
            '"Lean on me," said {A}, and slowly they walked on together.',
            '"I will help you," said {A}, and {he} helped {B} to walk.',
            '"Do not be afraid," said {A}. "We will go together."',
        ),
        (
            "So they came to the {thing} at the same time, and both of them won.",
            "When they came to the {thing}, the sun was going down, and they sat there and laughed.",
            "At the {thing} they sat down side by side and shared an apple.",
        ),
        (
            "",
            '"You are not only fast," said {B}. "You are also kind."',
            "{A} never again said that {he} was the fastest. {He} had a friend, and that was better.",
            '"It is better to come with a friend than to come first," said {A}.',
            "And from that day on {A} and {B} ran side by side.",
        ),
    ),
    hero_not=frozenset({"slow"}),
)

BOAST = Plot(
    "boast",
    ("hill", "mill", "oak", "mountain", "lake", "river", "tower", "bridge"),
    (
        (
            "{A} was proud because {he} could run so fast.",
            "{A} thought that nobody in the world was as fast as {he} was.",
            "Every day {A} told the neighbors how fast {he} could run.",
        ),
        (
            "{Day} {he} met {a_friend} named {B}, who walked very slowly.",
            "{Day} {he} saw {a_friend} named {B} walking slowly down the road.",
            "{A_friend} named {B} lived near by and was never in a hurry.",
        ),
        (
            "",
            '"How slow you are!" laughed {A}.',
            '"Do you never run?" asked {A}, and {he} laughed.',
            '"You are the slowest {kind2} in the world," said {A}.',
        ),
        (
            '"Let us race to the {full}," said {B}, "and we shall see."',
            '"Race with me to the {full}," said {B}.',
            '"I will be at the {full} before you," said {B}.',
        ),
        (
            "Off they went, and soon {A} was far in front.",
            "{A} ran like the wind, and soon {he} was alone.",
        ),
        (
            '"I have time," thought {A}. {He} lay down under a tree and fell asleep.',
            "The sun was warm, so {he} lay down in the grass and fell asleep.",
            '"I will rest a little," said {A}, and soon {he} was fast asleep.',
        ),
        (
            "But {B} walked on, step by step, and never stopped.",
            "{B} came past very quietly and walked on and on.",
            "{B} did not rest. Step by step {he2} came nearer to the {thing}.",
        ),
        (
            "When {A} woke up and came to the {thing}, {B} was already there.",
            "At last {A} woke up and ran and ran, but {B} was at the {thing} before {him}.",
        ),
        (
            "",
            "{B} only smiled.",
            '"Did you sleep well?" asked {B}.',
        ),
        (
            '"You have won," said {A}. "I will never laugh at you again."',
            '"Now I know that slow and steady can win," said {A}.',
            "{A} was ashamed, but {B} gave {him} some bread, and they became friends.",
        ),
    ),
    hero_not=frozenset({"slow"}),
    friend=("old", "small", "quiet", "wise old", "gentle"),
)

RIDDLE = Plot(
    "riddle",
    ("bridge", "gate", "tower", "cave", "mountain", "river"),
    (
        (
            "{Day} {he} came to {a_thing}. There sat {a_friend} named {B}.",
            "{Day} {he} came to {a_thing}, where {a_friend} named {B} kept watch.",
        ),
        (
            '"Stop!" said {B}. "Whoever wants to pass must answer my riddle."',
            '"If you want to pass," said {B}, "answer my riddle."',
        ),
        (
            "",
            '"Ask me," said {A}, but {his} heart beat fast.',
            '"I will try," said the {hero}.',
        ),
        (
            '"{riddle}" asked {B}.',
            'So {B} asked, "{riddle}"',
        ),
        (
            "",
            "{A} sat down and thought until the sun went down.",
            "{A} thought and thought and thought.",
            "{A} did not know it, and {he} sat down by the {thing}.",
        ),
        ("{hint}",),
        (
            'Suddenly {he} jumped up. "It is {answer}!" {he} cried.',
            '"Now I know!" cried {A}. "It is {answer}!"',
        ),
        (
            "",
            '"That is right," said {B}. "Nobody has ever known it before."',
            '{B} smiled and got up. "You are right, {A}," said the {kind2}.',
        ),
        (
            '"You may pass," said {B}, "but now I am alone again."',
            '"Now you may pass," said {B}, and {he2} looked sad.',
        ),
        (
            '"I will come again tomorrow," said {A}, "with a riddle for you."',
            '"Tomorrow it is my turn to ask," said {A}. "I will come again."',
        ),
        (
            "And so {he} did, and the two became good friends.",
            "And {B} was never alone at the {thing} again.",
        ),
    ),
    {
        "riddle|answer|hint": (
            "What has a bed but never sleeps?|a river|{He} listened to the water far away.",
            "What runs all day and has no legs?|a river|Far away {he} heard water running over stones.",
            "What comes down but never goes up?|the rain|Then a drop of water fell on {his} nose.",
            "What can fly without wings?|the wind|Then the wind came and played with the leaves.",
            "What follows you all day?|my shadow|The sun was low, and {his} shadow was long.",
            "What grows when you share it?|joy|{He} remembered how {he} had once shared a cake.",
            "What has two hands but cannot clap?|a clock|Far away in the village a clock struck.",
            "What goes up when the rain comes down?|an umbrella|An old woman went by in the rain and stayed dry.",
        ),
    },
    friend=("old", "big", "wise old", "quiet", "gray"),
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
