"""Short stories from a grammar: a small world (people, places, things) and plots that compose.

A story keeps the facts it tells: who, what, where. Questions about a story are asked from those facts, so
their answers are right by construction. Plots call one another: a helper may want help first, a way may be
blocked, a kindness may be returned in a second adventure.
"""

from template import article, pick, render, sentence_case
from world import ANIMALS, ANIMAL_NAMES, BOYS, COLORS, GIRLS, HELPERS, INDOORS, PLACES, THINGS, TRAITS, WEATHER


class Person:
    def __init__(self, name, female, kind, title):
        self.name = name
        self.female = female
        self.kind = kind  # "girl", "fox", "baker": what the person is
        self.title = title  # how the person is first named: "Rusty the fox", "a baker named Mr. Reed"


def child(rng, taken=()):
    female = rng.random() < 0.5
    names = [n for n in (GIRLS if female else BOYS) if n not in taken]
    name = pick(rng, names)
    kind = "girl" if female else "boy"
    return Person(name, female, kind, f"a {kind} named {name}")


def animal(rng, taken=()):
    name = pick(rng, [n for n in ANIMAL_NAMES if n not in taken])
    kind = pick(rng, ANIMALS)
    return Person(name, name in _FEMALE, kind, f"{article(kind)} named {name}")


_FEMALE = frozenset(ANIMAL_NAMES[::2])


def helper(rng):
    name, female, job = pick(rng, HELPERS)
    return Person(name, female, job, f"{name} the {job}")


class Story:
    """One story under construction: `text` when told, `facts` as (question, answer) pairs."""

    def __init__(self, rng):
        self.rng = rng
        self.paragraphs = [[]]
        self.facts = []
        self.slots = {}
        taken = []
        make = child if rng.random() < 0.55 else animal
        self.hero = make(rng)
        taken.append(self.hero.name)
        self.friend = (child if make is child and rng.random() < 0.7 else animal)(rng, taken)
        self.trait = pick(rng, TRAITS)
        self.place = pick(rng, list(PLACES))
        self.thing = pick(rng, list(THINGS))
        self.color = pick(rng, COLORS)
        self.cast("", self.hero)
        self.cast("f", self.friend)
        self.cast("w", helper(rng))
        self.set_thing(self.thing, self.color)
        self.set_place(self.place)
        self.later = False  # a second adventure: it does not begin with "One day"
        self.slots["trait"] = self.trait
        self.slots["atrait"] = article(self.trait)
        self.slots["weather"] = pick(rng, WEATHER)
        self.friend_unmet = False
        self.title = "A Story"

    def cast(self, role, person):
        """Binds a person to slots: {h} or {f}, {w}, {s}..., and {he} {him} {his} with the role's prefix."""
        s = self.slots
        s[role or "h"] = person.name
        s[(role or "h") + "kind"] = person.kind
        s[(role or "h") + "title"] = person.title
        he, him, his = ("she", "her", "her") if person.female else ("he", "him", "his")
        for key, word in (("he", he), ("him", him), ("his", his)):
            s[role + key] = word
            s[role + key.capitalize()] = word.capitalize()

    def set_thing(self, noun, color):
        info = THINGS[noun]
        s = self.slots
        s["o"], s["color"], s["co"], s["aco"] = noun, color, f"{color} {noun}", article(f"{color} {noun}")
        for key in ("play", "fix"):
            s[key] = render(info[key], self.rng, s)

    def set_place(self, noun):
        where, sights, spots = PLACES[noun]
        s = self.slots
        s["p"], s["at"], s["to"] = f"the {noun}", f"{where} the {noun}", f"to the {noun}"
        s["sight"] = pick(self.rng, sights)
        s["spot"] = pick(self.rng, spots)
        s["wrong"] = pick(self.rng, [x for x in spots if x != s["spot"]])

    def move(self, outdoors):
        """Chooses the place of the plot that follows; some plots need the open sky."""
        self.place = pick(self.rng, [p for p in PLACES if not (outdoors and p in INDOORS)])
        self.set_place(self.place)

    def say(self, *options):
        self.paragraphs[-1].append(render(pick(self.rng, options), self.rng, self.slots))

    def new_paragraph(self):
        if self.paragraphs[-1]:
            self.paragraphs.append([])

    def fact(self, question, answer):
        q = render(question, self.rng, self.slots)
        self.facts.append((q, sentence_case(render(answer, self.rng, self.slots)) + "."))

    def chance(self, p):
        return self.rng.random() < p

    @property
    def text(self):
        return "\n\n".join(" ".join(p) for p in self.paragraphs if p)


# ---------------------------------------------------------------- beginnings and ends


def opening(st):
    kid = st.hero.kind in ("girl", "boy")
    st.say(
        "Once upon a time there was {atrait} {hkind} named {h}.",
        "Once upon a time, {atrait} {hkind} named {h} lived [near|close to|not far from] {p}.",
        "{h} was {atrait} {hkind} who lived [near|next to|close to] {p}.",
        "There once was {atrait} {hkind} named {h}.",
        "[Long ago|Not so long ago], in a [small|quiet|sunny] village, there lived {atrait} {hkind} named {h}.",
        (
            "{h} the {hkind} was [very|always|known to be] {trait}."
            if not kid
            else "{h} was a [very|rather] {trait} {hkind}."
        ),
    )
    st.fact("[Who is the story about?|What is the name of the {hkind}?]", "{h}")
    st.fact("What kind of {hkind} was {h}?", "{atrait} {hkind}")
    if st.chance(0.6):
        st.say(
            "{He} had a [good|dear|best] friend, {ftitle}.",
            "{His} best friend was {ftitle}.",
            "{He} [often|always] played with {his} friend, {ftitle}.",
        )
        st.fact("Who was {h}'s [best |]friend?", "{f}")
    else:
        st.friend_unmet = True


def friend_in(st):
    """Names the friend properly at the first meeting."""
    if st.friend_unmet:
        st.friend_unmet = False
        return "{his} friend {f}" + ("" if st.friend.kind in ("girl", "boy") else " the {fkind}")
    return "{f}"


def go_out(st):
    if st.later:
        st.say(
            "[The next|The next|Another] [day|morning], {h} went {to}.",
            "[A few days|A week|Two weeks] later, {h} was {at}.",
        )
        if st.chance(0.5):
            st.say(st.slots["sight"])
        return
    st.say(
        "One {weather} [morning|day|afternoon], {h} went {to}.",
        "One {weather} [morning|day|afternoon], {he} [walked|ran|went out] {to}.",
        "It was a {weather} day, and {h} went {to}.",
        "On a {weather} [morning|afternoon], {h} was {at}.",
    )
    st.fact("Where was {h}[| at first]?", "{at}")
    if st.chance(0.6):
        st.say(st.slots["sight"])


def ending(st):
    st.new_paragraph()
    st.say(
        "{h} was [very |so |]happy, and so was {e}.",
        "That evening {h} [told everyone at home about it|thought about the day and smiled|fell asleep with a smile].",
        "From that day on, {h} and {e} were [the best of friends|good friends|always kind to each other].",
        "They [laughed|smiled|hugged] and went home [together|side by side|as the sun went down].",
        '"[What a day|What a fine day|This was the best day]!" said {h}, and {e} [laughed|nodded|smiled].',
    )
    if st.chance(0.45):
        st.say(
            "[The end.|And they all had [soup|cake|warm bread|tea with honey] for supper.|"
            "And that night the [moon|stars] shone [over {p}|on everyone].|It was a day {h} never forgot.]"
        )


# ---------------------------------------------------------------- pieces that plots share


def search_wrong(st):
    st.say(
        "{He} looked {wrong}, but [it was not there|there was nothing there|"
        "found only [a snail|an old leaf|a feather|some dust]].",
        "First {he} looked {wrong}. [Nothing!|It was not there.|No luck.]",
        "{He} looked {wrong}, and [then |]{he} looked everywhere else {he} could think of.",
    )


def feel_sad(st):
    st.say(
        "{h} was [very |so |]sad.",
        "{He} sat down and [began to cry|sighed|did not know what to do].",
        '"[Oh no|Oh dear]!" [cried|said] {h}. "What [can|should|shall] I do[ now|]?"',
        "A [big |small |]tear ran down {his} [face|nose].",
    )


def meet_helper(st):
    """Brings a helper in: a friend or somebody with a trade. Returns the role letter: f or w."""
    if st.chance(0.5):
        name = friend_in(st)
        st.say(
            f"Just then, {name} came by.",
            f"Then {name} [came along|came down the path].",
            f"{{He}} ran to {name} and told {{fhim}} [everything|what had happened|the whole story].",
        )
        role = "f"
    else:
        st.say(
            "Just then, {wtitle} came by.",
            "{He} went to {wtitle} [to ask for help|and asked for help].",
            "On the way {he} met {wtitle}.",
        )
        role = "w"
    person = {k: st.slots[role + k] for k in ("he", "him", "his", "He", "His")}
    st.slots["e"] = st.slots[role]
    st.slots["ehe"], st.slots["ehim"], st.slots["ehis"] = person["he"], person["him"], person["his"]
    st.slots["eHe"], st.slots["eHis"] = person["He"], person["His"]
    st.say(
        '"[What is wrong|What is the matter|Why are you so sad], {h}?" asked {e}.',
        '"Hello, {h}! [Can I help you|Do you need help]?" [said|asked] {e}.',
        '"Can you help me[, please|]?" asked {h}.',
    )


def side_quest(st, depth):
    """The helper wants something first: a smaller errand inside the story."""
    outer = dict(st.slots)
    item = pick(st.rng, [t for t in THINGS if t != st.slots["o"]])
    color = pick(st.rng, [c for c in COLORS if c != st.slots["color"]])
    place = pick(st.rng, [p for p in PLACES if "the " + p != st.slots["p"]])
    st.slots["o2"], st.slots["c2"] = item, f"{color} {item}"
    st.set_place(place)
    st.slots["o"] = outer["o"]
    st.new_paragraph()
    st.say(
        '"I will [gladly |]help you," said {e}, "but first I need my {c2}. I left it {at}."',
        '"I can help," said {e}, "but I have lost my {c2}. [It must be|I think it is] {at}. Will you bring it to me?"',
    )
    st.fact("What did {e} need[ first|]?", "{ehis} {c2}")
    st.say(
        '"[Of course|Yes, I will|I will find it]!" said {h}, and {he} [ran|went|hurried] {to}.',
        "So {h} [ran|went|hurried] {to}.",
    )
    if st.chance(0.5):
        st.say(st.slots["sight"])
    if depth < 1 and st.chance(0.4):
        obstacle(st)
    if st.chance(0.5):
        search_wrong(st)
    st.say(
        "At last {he} found the {o2} {spot}[|, and {he} carried it back].",
        "There it was: the {o2} lay {spot}. {He} picked it up and ran back.",
    )
    st.fact("Where did {h} find the {o2}?", "{spot}")
    st.say(
        '"Thank you!" said {e}. "Now [I will help you|it is my turn to help]."',
        '{e} was glad to have the {o2} back. "[Now it is my turn|Now let me help you]," {ehe} said.',
    )
    for key in ("p", "at", "to", "sight", "spot", "wrong"):
        st.slots[key] = outer[key]
    st.new_paragraph()


def obstacle(st):
    kind = pick(st.rng, ("river", "gate", "dark", "wind"))
    if kind == "river":
        st.say(
            "But there was a [wide|deep|cold] [river|stream] in the way. "
            "{h} [found a log and walked over it|jumped from stone to stone|"
            "waited for the [old |]ferry and rode across], [one step at a time|very carefully|without getting wet]."
        )
    elif kind == "gate":
        st.say(
            "But the gate was [locked|shut]. {h} [knocked three times and a [hen|goat|goose] opened it|"
            "found the key under a [stone|flower pot]|climbed over it]."
        )
    elif kind == "dark":
        st.say(
            "It was [very |]dark there. {h} was a little afraid, "
            "but {he} [sang a song|lit a lamp|counted [{his} steps|to ten]] and went on."
        )
    else:
        st.say(
            "A [strong|cold] wind blew, and {h} had to [hold on to a tree|walk slowly|hide behind a wall] until it "
            "[stopped|was gone]."
        )


def maybe_quest(st, depth):
    if depth < 2 and st.chance(0.4):
        side_quest(st, depth)


def thanks(st):
    st.say(
        '"Thank you, {e}!" said {h}.',
        "{h} thanked {e} [again and again|with all {his} heart|and gave {ehim} [a hug|an apple|a flower]].",
        '"You are [so kind|a true friend|the best], {e}," said {h}.',
    )
