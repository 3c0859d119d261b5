"""The small world of the stories: names, places with their sights and hiding spots, things and their uses."""

GIRLS = "Mia Lily Anna Rosa Nora Zoe Ella Ivy Clara Hana Maya Tess Ruby June Lena Sara".split()
BOYS = "Tom Ben Sam Leo Max Finn Omar Jack Hugo Otto Eli Noah Kai Theo Ravi Luca".split()
ANIMALS = "fox rabbit bear mouse duck hedgehog squirrel frog cat dog otter badger owl goat".split()
ANIMAL_NAMES = "Hazel Rusty Fern Bramble Clover Moss Tansy Pip Willow Biscuit Dot Bruno Poppy Acorn Daisy Oscar".split()

HELPERS = [
    ("Mr. Reed", False, "baker"),
    ("Mrs. Lane", True, "teacher"),
    ("Mr. Stone", False, "gardener"),
    ("Mrs. Bell", True, "farmer"),
    ("Mr. Brook", False, "fisherman"),
    ("Mrs. Hill", True, "doctor"),
    ("Mr. Wood", False, "carpenter"),
    ("Mrs. Gray", True, "painter"),
    ("Mr. Field", False, "miller"),
    ("Mrs. Park", True, "tailor"),
]

TRAITS = "kind brave curious clever shy cheerful quiet gentle lively patient".split()
COLORS = "red blue green yellow white orange purple golden silver brown".split()
WEATHER = "sunny windy cold warm cloudy bright foggy fine".split()

# noun: (preposition, sights, spots where a thing can lie)
PLACES = {
    "garden": (
        "in",
        ["The roses were [in bloom|red and white].", "Bees hummed [in the flowers|from flower to flower]."],
        ["under a rose bush", "behind the watering can", "next to the old bench", "between the tomatoes"],
    ),
    "forest": (
        "in",
        ["The trees were tall and [green|quiet].", "A woodpecker knocked on a tree."],
        ["under a pile of leaves", "inside a hollow tree", "behind a big rock", "on a mossy log"],
    ),
    "beach": (
        "on",
        ["The waves rolled in and out.", "White gulls cried [above the water|in the wind]."],
        ["under a heap of seaweed", "in a little pool", "behind a sand castle", "next to an old boat"],
    ),
    "farm": (
        "on",
        ["The cows [looked up and mooed|were eating grass].", "A rooster crowed on the fence."],
        ["in the hay", "behind the barn", "under the wagon", "next to the well"],
    ),
    "market": (
        "at",
        ["There were apples, cheese and [bright|colorful] cloth.", "Everyone was [busy|buying and selling]."],
        ["under a table", "in a basket of apples", "behind the bread stall", "between two barrels"],
    ),
    "hill": (
        "on",
        ["From there one could see [the whole village|for miles].", "The grass was tall and soft."],
        ["in the tall grass", "under a pine tree", "behind a stone wall", "in a rabbit hole"],
    ),
    "river": (
        "at",
        ["The water was [clear|cool] and [fast|bright].", "Small fish swam [by|between the stones]."],
        ["between two stones", "in the reeds", "under the bridge", "on a small island"],
    ),
    "park": (
        "in",
        ["Children played on the swings.", "The ducks [swam on the pond|asked for bread]."],
        ["under the slide", "behind a bench", "in the sand box", "next to the pond"],
    ),
    "library": (
        "in",
        ["It was quiet, and it smelled of old books.", "The shelves went up to the ceiling."],
        ["behind a tall shelf", "under a chair", "between two thick books", "on the window seat"],
    ),
    "school": (
        "at",
        ["The bell had just rung.", "There were [drawings|paintings] on every wall."],
        ["under a desk", "behind the piano", "in the coat room", "next to the blackboard"],
    ),
    "barn": (
        "in",
        [
            "It smelled of hay and [horses|apples].",
            "A little light came through the [small window|cracks in the wall].",
        ],
        ["in the straw", "behind a ladder", "under a blanket", "on top of a box"],
    ),
    "meadow": (
        "in",
        ["Butterflies danced over the flowers.", "The [daisies|poppies] moved in the wind."],
        ["in the clover", "under a wild rose", "behind a haystack", "next to a molehill"],
    ),
}

INDOORS = frozenset(("library", "school", "barn"))

# noun: what one does with it (past tense), how it is mended
THINGS = {
    "kite": {"play": "[flew|played with] {his} {co}", "fix": "with [paper and glue|new string]"},
    "ball": {"play": "[threw|kicked|played with] {his} {co}", "fix": "with [a patch|some glue]"},
    "boat": {"play": "sailed {his} little {co}", "fix": "with [wood and glue|a new sail]"},
    "drum": {"play": "[played|beat] {his} {co}", "fix": "with [new skin and string|some glue]"},
    "book": {"play": "read {his} {co}", "fix": "with [paper and glue|needle and thread]"},
    "hat": {"play": "[wore|put on] {his} {co}", "fix": "with needle and thread"},
    "lantern": {"play": "[carried|swung] {his} {co}", "fix": "with [wire|new glass]"},
    "wagon": {"play": "pulled {his} {co}", "fix": "with [a new wheel|hammer and nails]"},
    "whistle": {"play": "blew {his} {co}", "fix": "with [wax|a bit of string]"},
    "scarf": {"play": "[wore|put on] {his} {co}", "fix": "with needle and thread"},
    "puppet": {"play": "played with {his} {co}", "fix": "with [string and glue|needle and thread]"},
    "basket": {"play": "[carried|swung] {his} {co}", "fix": "with [twigs|string]"},
}

BABIES = [
    ("bird", "had fallen out of its nest", "put it back into the nest"),
    ("kitten", "was stuck [up |]in a tree", "climbed up and carried it down"),
    ("lamb", "was caught in a thorn bush", "pulled the thorns away, one by one"),
    ("turtle", "lay on its back and could not get up", "turned it over"),
    ("duckling", "could not find its mother", "carried it to the pond, where its mother was"),
    ("puppy", "had a thorn in its paw", "pulled out the thorn and tied a cloth around the paw"),
]

FOODS = {
    "apple pie": ("apples", "flour", "butter"),
    "carrot soup": ("carrots", "onions", "salt"),
    "honey cake": ("honey", "eggs", "flour"),
    "berry jam": ("berries", "sugar", "a lemon"),
    "pumpkin bread": ("a pumpkin", "flour", "eggs"),
    "plum cake": ("plums", "butter", "sugar"),
}

FEARS = {
    "the dark": (
        "[The night was black.|There was no moon.]",
        "brought a [small|warm] lamp",
        "saw that the dark was full of stars",
    ),
    "deep water": ("The water looked [deep|cold].", "held {his} hand", "swam all the way across"),
    "thunder": ("Dark clouds came, and it [rumbled|thundered].", "sang a [loud|funny] song", "clapped at every boom"),
    "high places": ("The [bridge|ladder] was very high.", "climbed beside {him}", "stood at the top and waved"),
    "loud dogs": (
        "A dog barked behind the fence.",
        "showed {him} how to hold out {his} hand",
        "scratched the dog behind its ear",
    ),
}

NOISES = {
    "a tap, tap, tap": ("[a branch|a twig] that touched the window", "window"),
    "a soft cry": ("a [hungry|lost] kitten", "door"),
    "a deep hum": ("a nest of bees", "roof"),
    "a splash": ("a frog in the rain barrel", "barrel"),
    "a long whistle": ("the wind in an empty bottle", "wall"),
    "a scratching sound": ("a mouse with a nut", "floor"),
}

PLANTS = {
    "sunflower": ("taller than the [door|fence]", "seeds"),
    "pumpkin": ("as big as a [wheel|chair]", "soup"),
    "apple tree": ("as high as the roof", "apples"),
    "bean plant": ("up to the window", "beans"),
    "strawberry plant": ("wide and green", "berries"),
    "cherry tree": ("strong and tall", "cherries"),
}

CONTESTS = {
    "a race": ("ran", "up and down the hill", "run"),
    "a singing contest": ("sang", "in front of the mirror", "sing"),
    "a boat race": ("rowed", "on the pond", "row"),
    "a drawing contest": ("drew", "on old paper", "draw"),
    "a jumping contest": ("jumped", "over a low fence", "jump"),
    "a baking contest": ("baked", "in the kitchen", "bake"),
}
