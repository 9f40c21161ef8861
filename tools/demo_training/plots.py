"""The plots of the tales, first third. Every beat is a choice of wordings; any choice goes with any other.

Placeholders: {A} and {B} are the names of hero and friend; {he} {him} {his} {himself} speak of the hero, {he2} {him2} {his2} {himself2} of
the friend, who never share a pronoun; {kind} and {kind2} are the nouns, {hero} and {friend} the nouns with their adjectives, {a_hero} and
{a_friend} the same with an article; {thing}, {full} and {a_thing} do this for the thing; {day} is "one day" or the like; {intro} introduces
the thing. A capital first letter in the placeholder gives one in the text, and every beat begins with one by itself.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field

from demo_training.cast import FRIEND_ADJECTIVES, YOUNG_ADJECTIVES

INTRO_PLACE = (
    "Near {his} home there was {a_thing}.",
    "Not far away there was {a_thing}.",
    "Every day {he} walked past {a_thing}.",
    "From {his} window {he} could see {a_thing}.",
    "Close to {his} home there was {a_thing}.",
)
INTRO_OWNED = (
    "{He} had {a_thing} and loved it very much.",
    "{A} had {a_thing}, and nothing was dearer to {him}.",
    "{His} dearest treasure was {a_thing}.",
    "{A} never went anywhere without {his} {full}.",
    "{His} mother had given {him} {a_thing}.",
)

Wordings = tuple[str, ...]


@dataclass(frozen=True, slots=True)
class Plot:
    """Beats in order, and what they need.

    `picks` are further placeholders: the key names one, or several joined with "|", the values are what they may become together. A beat
    whose first wording is empty may be left out. Kinds with a flag in `hero_not` or `friend_not` are never cast; `friend` are the
    adjectives of the friend.
    """

    name: str
    things: tuple[str, ...]
    beats: tuple[Wordings, ...]
    picks: Mapping[str, tuple[str, ...]] = field(default_factory=dict)
    hero_not: frozenset[str] = frozenset()
    friend_not: frozenset[str] = frozenset()
    friend: Wordings = FRIEND_ADJECTIVES


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

AFRAID = Plot(
    "afraid",
    ("well", "bridge", "cave", "tower", "mill", "oak", "lake"),
    (
        ("{intro}",),
        (
            "{A} was afraid of the {thing}, for {he} thought that a monster lived there.",
            "{He} never went near it, because {he} was afraid.",
            "Everybody said that a monster lived there, and {A} was afraid.",
        ),
        (
            "{Day} {he} heard a soft cry coming from the {thing}.",
            "{Day} a strange sound came from the {thing}.",
            "{Day} {he} heard somebody crying near the {thing}.",
        ),
        (
            "{A} ran to {his} friend {B}, {a_friend}.",
            "{A} had a friend, {a_friend} named {B}, and {he} ran to {him2}.",
            "{A} ran as fast as {he} could to {his} friend {B}, who was {a_friend}.",
        ),
        (
            "",
            '"There is a monster at the {thing}!" {he} cried.',
            '"Help me, {B}! The monster is awake!" {he} cried.',
            '"I heard the monster," said {A}, "and I am so afraid."',
        ),
        (
            '"Let us go and see," said {B}. "I will be with you."',
            '"Come with me," said {B}. "Two need not be afraid."',
            '"I am a little afraid too," said {B}, "but we can go together."',
        ),
        (
            "",
            "Step by step they went to the {thing}.",
            "Slowly and quietly they walked to the {thing}.",
            "So they went to the {thing}, side by side.",
        ),
        (
            "But there was no monster at all. It was only {small}.",
            "And what did they see? There sat {small}, and no monster.",
            "There they found {small}, cold and alone.",
        ),
        (
            "",
            '"Do not cry, little one," said {A}, and they took it home to its mother.',
            "{A} gave it something to eat, and together they took it home.",
            "{A} picked it up, and {B} showed them the way to its mother.",
        ),
        (
            "After that {A} was never again afraid of the {thing}.",
            'Then {A} laughed. "I was afraid of nothing at all," {he} said.',
            "{A} learned that day that a friend makes the dark less dark.",
            'And {A} said, "With a friend I can be brave."',
        ),
    ),
    {"small": ("a lost puppy", "a baby bird", "a lost kitten", "a baby rabbit")},
    hero_not=frozenset({"night"}),
)

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

WISH = Plot(
    "wish",
    ("well", "pond", "oak", "ring", "lamp", "cave", "lake", "coin"),
    (
        ("{intro}",),
        (
            "It was a magic {thing}, and it could grant one wish.",
            "An old woman had told {him} that the {thing} could grant one wish.",
            "People said that the {thing} was magic and could grant one wish.",
        ),
        (
            '"I will wish for {gold}," thought {A}.',
            "{A} wanted to wish for {gold}.",
            '"If I had {gold}, I would be happy," said {A} to {himself}.',
        ),
        (
            "But that same day {he} met {a_friend} named {B}, who {need}.",
            "Then {a_friend} named {B} came along the road. {B} {need}.",
            "But first {he} met {a_friend} named {B}, and {B} {need}.",
        ),
        (
            "",
            '"Can you help me?" asked {B}.',
            '"I do not know what to do," said {B}, and a tear fell down.',
            "{B} said nothing, but {he2} looked very sad.",
        ),
        (
            "",
            "{A} thought for a long time. It was hard to give up the {gold_short}.",
            "The {hero} thought of the {gold_short}, and then {he} looked at {B}.",
            "{A} looked at {B} and forgot about the {gold_short}.",
        ),
        (
            'Then {A} said, "{Thing}, {thing}, I wish for {cure} for my friend {B}."',
            'At last {A} said, "I wish for {cure} for {B}."',
        ),
        (
            "At once there was a bright light, and {done}.",
            "The wind blew softly, a bell rang far away, and {done}.",
            "Then everything shone like silver, and {done}.",
        ),
        (
            "",
            '"You gave me your only wish!" cried {B}.',
            '"How kind you are!" said {B}, and {he2} laughed for joy.',
            '"I will never forget it," said {B}.',
        ),
        (
            "{A} had no {gold_short}, but {he} had a friend, and {he} was happy.",
            "And {A} found that a friend is better than {gold}.",
            "From that day on they were always together, and {A} wished for nothing more.",
        ),
    ),
    {
        "gold|gold_short": ("a bag of gold|gold", "a golden crown|golden crown", "a big castle|castle", "a mountain of cakes|cakes"),
        "need|cure|done": (
            "had no home|a warm house|a little house with a red door stood in the meadow",
            "was very hungry|a good supper|a table full of bread and soup stood under the tree",
            "was cold and had no coat|a warm coat|{B} wore a fine blue coat",
            "had lost the way home|the right way home|a row of little lights showed {B} the way home",
        ),
    },
)

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

STUCK = Plot(
    "stuck",
    ("well", "lake", "river", "pond", "cave"),
    (
        (
            "{His} best friend was {a_friend} named {B}.",
            "{A} had a good friend, {a_friend} named {B}.",
            "Every day {he} played with {a_friend} named {B}.",
        ),
        (
            "{Day} they were playing near {a_thing}.",
            "{Day} the two friends went to {a_thing}.",
            "{Day} they walked together to {a_thing}.",
        ),
        (
            "",
            '"Do not go too near," said {A}, but {B} did not listen.',
            "{B} wanted to see how deep it was, and {he2} went too near.",
            '"Look how brave I am!" cried {B}, and {he2} went too near.',
        ),
        (
            "Suddenly {B} slipped and fell into the {thing}.",
            "Then {B} slipped and fell into the {thing}.",
            "All at once {B} fell into the {thing}.",
        ),
        (
            "",
            '"Help! Help!" cried {B}.',
            '"Help me, {A}!" cried the {kind2}. "I cannot get out!"',
            '"Oh, help me!" cried {B} from below.',
        ),
        (
            "",
            "{A} was afraid, but {he} did not run away.",
            "{A} looked around, but nobody was there to help.",
            "The {hero} was not strong, but {he} was clever.",
        ),
        (
            "{A} found a long rope and threw one end to {B}.",
            "{A} took a long branch and held it out to {B}.",
            "{A} ran to fetch a rope, and {he} tied it to a tree.",
        ),
        (
            "",
            '"Hold on!" cried {A}, and {he} pulled with all {his} might.',
            '"Do not let go!" cried {A}. {He} pulled and pulled.',
            "{B} held on, and {A} pulled as hard as {he} could.",
        ),
        (
            "At last {B} was out again, cold and tired, but safe.",
            "Slowly, slowly, {B} came up, and then {he2} was safe.",
        ),
        (
            "",
            '"You saved me," said {B}. "Next time I will listen to you."',
            "They went home, sat by the fire and drank hot milk.",
            '"What would I do without you?" said {B}.',
        ),
        (
            "And they never played near the {thing} again.",
            "Since then {B} has always been careful, and {A} has had the best friend in the world.",
            "And whenever {A} needed help, {B} was there.",
        ),
    ),
    friend_not=frozenset({"wings", "swims", "grown"}),
    friend=YOUNG_ADJECTIVES,
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
