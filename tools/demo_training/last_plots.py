"""The plots of the tales, last third; `plots.py` says what the placeholders mean."""

from __future__ import annotations

from demo_training.cast import YOUNG_ADJECTIVES
from demo_training.more_plots import GIFT, GROW, LIGHT, MOON, MUSIC, QUARREL
from demo_training.plots import AFRAID, BOAST, FOUND, LOST, MEND, RACE, STUCK, WISH, Plot

JOURNEY = Plot(
    "journey",
    ("boat", "map", "cart", "coat", "basket"),
    (
        (
            "More than anything in the world {A} wanted to see {dream}.",
            "Every night {he} dreamed of {dream}.",
            '"One day I will see {dream}," {A} always said.',
        ),
        (
            "",
            '"It is too far," said the neighbors, and they laughed.',
            '"Stay at home," said the neighbors. "It is too far."',
        ),
        (
            "{Day} {he} took {his} {full} and set out.",
            "Then {his} grandmother gave {him} {a_thing}, and {he} set out.",
            "{A} had {a_thing}, and {day} {he} set out.",
        ),
        (
            "On the way {he} met {a_friend} named {B}.",
            "After a while {he} saw {a_friend} named {B}, who sat all alone.",
        ),
        (
            '"Where are you going?" asked {B}. "To see {dream}," said {A}.',
            '"Where are you going with that {thing}?" asked {B}. "To {dream}," said {A}.',
        ),
        (
            '"Then I will come with you," said {B}.',
            '"May I come with you?" asked {B}. "Yes," said {A}.',
            '"Take me with you," said {B}, and so they were two.',
        ),
        (
            "",
            "They traveled for seven days, over hills and through forests.",
            "They traveled a long, long way, in sun and in rain.",
        ),
        (
            "",
            '"I am so tired," said {A}. "Only one more hill," said {B}.',
            "When {A} was tired, {B} sang, and when {B} was tired, {A} told stories.",
        ),
        (
            "And then, one evening, they saw it. There was {dream}!",
            "At last they came over the last hill, and there was {dream}.",
        ),
        (
            "",
            "It was more beautiful than {A} had ever dreamed.",
            "They sat down side by side and could not say a word.",
        ),
        (
            '"It was far," said {A}, "but with you the way was short."',
            "Then they went home and told everybody what they had seen.",
            "And {A} kept the {full} for ever, to remember that day.",
        ),
    ),
    {"dream": ("the sea", "the great white city", "the end of the rainbow", "the land of flowers", "the big waterfall")},
)

CLIMB = Plot(
    "climb",
    ("mountain", "hill", "tower"),
    (
        ("{intro}",),
        (
            '"What can you see from the top of it?" {A} always asked, but nobody knew.',
            "{A} wanted to know what one could see from the top, but nobody could tell {him}.",
        ),
        (
            "",
            '"It is too high for you," said the neighbors.',
            '"Stay down here with us," said the neighbors.',
        ),
        (
            "{Day} {he} packed some bread and began to climb.",
            "{Day} {he} went to the {thing} and began to climb.",
        ),
        (
            "Soon {he} was tired. There sat {a_friend} named {B}, who was tired too.",
            "Half way up {he} met {a_friend} named {B}, who was afraid to go on.",
        ),
        (
            "",
            '"It is too high," said {B}. "I want to go home."',
            '"I cannot go up and I cannot go down," said {B}.',
        ),
        (
            '"Do not look down," said {A}. "Come, one step and then another."',
            '"Eat some of my bread," said {A}. "Then we will go on together."',
        ),
        (
            "",
            "So they climbed on together, slowly and carefully.",
            "One step and then another, they climbed up and up.",
        ),
        (
            "And when they came to the top of the {thing}, they saw {view}.",
            "At last they stood on the top of the {thing}, and far below they saw {view}.",
        ),
        (
            "",
            '"Now I know!" cried {A}. "You can see the whole world!"',
            '"How beautiful!" said {B}, and {he2} was not afraid any more.',
        ),
        (
            "",
            "They shared the rest of the bread and stayed until the stars came out.",
            "They sat there until the sun went down, and nobody was happier than they were.",
        ),
        (
            "Since then they have climbed the {thing} together every summer.",
            '"Alone I would have turned around," said {A}, and {B} said, "So would I."',
            "And from that day on {A} and {B} were friends.",
        ),
    ),
    {"view": ("the blue sea and a white ship", "the river, the forest and all the little houses", "all the fields, as small as flowers")},
    hero_not=frozenset({"wings"}),
    friend_not=frozenset({"wings"}),
    friend=YOUNG_ADJECTIVES,
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

CHEER = Plot(
    "cheer",
    ("rose", "sunflower", "book", "cake", "pie", "pear", "apple", "blanket", "kite", "flute", "candle", "clock", "lantern"),
    (
        (
            "{His} best friend was {a_friend} named {B}.",
            "Next door lived {a_friend} named {B}, and the two were good friends.",
        ),
        (
            "{Day} {B} was ill and had to stay in bed.",
            "{Day} {B} was very sad, and nobody knew why.",
        ),
        (
            "",
            '"I will bring {him2} something," thought {A}.',
            "{A} wanted to make {him2} happy again.",
        ),
        (
            "{A} went to {seller} and asked for {a_thing}.",
            "{A} went to {seller}, who had {a_thing}.",
        ),
        (
            "",
            '"What will you give me for the {thing}?" asked {short}.',
            '"The {thing} is not cheap," said {short}.',
        ),
        (
            "",
            '"I have no money," said {A}, "but I can work."',
            '"I have nothing but my two ears and a good heart," said {A}, "but I can help you."',
        ),
        (
            "So {he} {work}, and in the evening {he} got the {thing}.",
            "All day long {he} {work}, and then the {thing} belonged to {him}.",
        ),
        (
            "",
            "It was raining, and the way was long, but {A} carried the {thing} carefully.",
            "{A} was tired, but {he} ran all the way to {B}.",
        ),
        (
            '"Look what I have for you!" {he} cried.',
            '"This is for you," said {A}, and {he} put the {thing} beside the bed.',
        ),
        (
            "",
            "{B} looked at the {full} and began to smile.",
            '"{A_thing}!" said {B}. "How did you know?"',
        ),
        (
            "",
            "The next morning {B} was well again, and they played in the sun.",
            "And from that hour on {he2} felt better and better.",
        ),
        (
            '"It was not the {thing}," said {B}. "It was you."',
            "And {A} was as happy as {B}.",
            "So it is with friends: when one laughs, the other laughs too.",
        ),
    ),
    {
        "seller|short|work": (
            "an old woman|the old woman|swept the house and carried the wood",
            "the merchant|the merchant|carried boxes and swept the shop",
            "an old man on the hill|the old man|carried water and cut wood",
        )
    },
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

PLOTS = (LOST, AFRAID, MEND, WISH, RACE, BOAST, STUCK, FOUND, MUSIC, GROW, LIGHT, MOON, GIFT, QUARREL, JOURNEY, CLIMB, SHARE, CHEER, RIDDLE)
