"""The plots, and `tell`, which makes a whole story. Each plot has a problem and a resolution and records its facts."""

from stories import (Story, animal, ending, feel_sad, friend_in, go_out, maybe_quest, meet_helper, obstacle, opening,
                     search_wrong, side_quest, thanks)  # fmt: skip
from template import article, pick, render
from world import BABIES, CONTESTS, FEARS, FOODS, NOISES, PLANTS

PLOTS = {}


def plot(title, uses_thing=False, outdoors=False):
    def register(function):
        function.outdoors = outdoors
        function.title = title
        function.uses_thing = uses_thing
        PLOTS[function.__name__] = function
        return function

    return register


def equal(st, role):
    """Makes the person in `role` the one the end of the story speaks of: {e}."""
    for key in ("he", "him", "his", "He", "His"):
        st.slots["e" + key] = st.slots[role + key]
    st.slots["e"] = st.slots[role]


@plot("The Lost {O}", uses_thing=True)
def lost(st, depth):
    st.say(
        "{He} had {aco} and loved it very much.",
        "{He} owned {aco}, a present from {his} [grandmother|grandfather|aunt].",
        "Every day {he} {play}.",
    )
    st.fact("What did {h} lose?", "{aco}")
    st.fact("What color was the {o}?", "{color}")
    go_out(st)
    st.say(
        "{He} {play} and [played|laughed|sang] all [morning|day] long.",
        "There {he} {play} until noon.",
        "{He} {play}, and then {he} took a [short |]nap.",
    )
    st.new_paragraph()
    st.say(
        "But then the {o} was gone!",
        "But when {he} wanted to go home, the {o} was [gone|not there].",
        "But suddenly {h} could not find the {o} [anywhere|any more].",
    )
    if st.chance(0.6):
        feel_sad(st)
    search_wrong(st)
    meet_helper(st)
    st.say('"I have lost my {co}," said {h}.', '"My {o} is gone," {h} said. "I looked {wrong}, but it is not there."')
    maybe_quest(st, depth)
    st.say(
        '"[Let us look together|We will find it|Two can look better than one]," said {e}.',
        '{e} [thought for a moment|looked around|scratched {ehis} head]. "Did you look {spot}?" {ehe} asked.',
    )
    st.say(
        "They [went back and |]looked {spot}, and there was the {o}!",
        "And [really|indeed], there it was, {spot}!",
        "They looked and looked. At last {e} found the {o} {spot}.",
    )
    st.fact("Where was the {o}[| found]?", "{spot}")
    st.fact("Who helped {h}?", "{e}")
    thanks(st)


@plot("The Broken {O}", uses_thing=True)
def broken(st, depth):
    go_out(st)
    st.say("{He} {play} and was [happy|glad].", "{He} {play} [all morning|for a while].")
    st.new_paragraph()
    st.say(
        "But [a stone lay in the way|the wind was too strong|{he} was not careful], "
        "and the {o} [fell down and |]broke.",
        "Then {he} [tripped|slipped] and fell on the {o}. [Crack!|Snap!] It was broken.",
    )
    st.fact("What broke?", "the {o}")
    st.fact("What color was the {o}?", "{color}")
    feel_sad(st)
    meet_helper(st)
    st.say('"My {co} is broken," said {h}.', "{h} showed {ehim} the broken {o}.")
    maybe_quest(st, depth)
    st.say(
        '"[Do not worry|That is not so bad|Do not cry]. We can mend it {fix}," said {e}.',
        '{e} looked at the {o}. "I know how to mend it," {ehe} said. "We can do it {fix}."',
    )
    st.say(
        "They worked [until evening|for an hour|side by side], and then the {o} was [as good as new|whole again].",
        "It took [a long time|all afternoon], but at last the {o} was [as good as new|whole again].",
    )
    st.fact("How did they mend the {o}?", "{fix}")
    st.fact("Who helped {h}?", "{e}")
    thanks(st)


@plot("{H} and {F} Share", uses_thing=True)
def share(st, depth):
    equal(st, "f")
    go_out(st)
    name = friend_in(st)
    st.say("{He} had {aco} with {him}.", "{He} {play}.")
    subject = name if name == "{f}" else "{His}" + name[len("{his}") :]
    st.say(subject + " [saw it and |]wanted to have the {o} too.")
    st.fact("What did {f} want?", "the {o}")
    st.say(
        '"[No|No, no|Go away]! It is mine," said {h}.',
        'But {h} did not want to share. "[It is mine|I had it first]," {he} said.',
    )
    st.say("{f} was [sad|hurt] and went away.", "{f} turned around and [walked home|sat down alone].")
    st.new_paragraph()
    st.say(
        "{h} played alone, but it was [no fun|not the same|a little boring].",
        "Now {h} had the {o}, but nobody to [play|laugh] with.",
    )
    if st.chance(0.4):
        st.say('{wtitle} saw it. "A thing that is shared is twice as good," {whe} said.')
        st.fact("Who talked to {h}?", "{w}")
    if st.chance(0.3):
        obstacle(st)
    st.say(
        'So {h} ran after {f}. "I am sorry," {he} said. '
        '"[Let us take turns|You may have it first|Let us play together]."',
        '{h} went to {f} and said, "I am sorry. [You can go first|We can take turns]."',
    )
    st.say(
        "{f} [smiled|was happy again|laughed], and they [took turns|played together] until "
        "[it was dark|the sun went down]."
    )
    st.fact("What did {h} say to {f}?", "{he} was sorry")


@plot("The Storm", outdoors=True)
def storm(st, depth):
    equal(st, "f")
    name = friend_in(st)
    go_out(st)
    st.say(f"{{He}} met {name} there, and they [played hide and seek|picked flowers|told each other [jokes|riddles]].")
    st.new_paragraph()
    kind, sound, after = pick(
        st.rng,
        (
            ("rain", "It rained and rained.", "a rainbow"),
            ("snow", "Big white flakes fell from the sky.", "a white world"),
            ("hail", "Small balls of ice hit the ground.", "a clear blue sky"),
        ),
    )
    st.slots.update(
        kind=kind,
        after=after,
        shelter=pick(
            st.rng, ("under an old bridge", "in a small hut", "in a dry cave", "in a barn", "under a thick tree")
        ),
    )
    st.say("[Suddenly|All at once] the sky grew dark. " + sound, "Then [grey|dark] clouds came. " + sound)
    st.fact("What fell from the sky?", "{kind}")
    st.say(
        '"[We must hide|Quick, we need a dry place|Run]!" [cried|said] {f}.',
        '"I am [cold|wet|getting wet]," said {h}. "[Where can we go|What shall we do]?"',
    )
    if st.chance(0.35):
        obstacle(st)
    st.say("They ran and [hid|sat down] {shelter}.", "They found a place {shelter} and waited.")
    st.fact("Where did they hide?", "{shelter}")
    if st.chance(0.6):
        st.say(
            "{h} told a [funny|long] story, and {f} [sang|laughed], so the time went by [fast|quickly].",
            "They shared [a piece of bread|an apple|some nuts] and listened to the {kind}.",
        )
    st.say(
        "When it was over, they [looked|stepped] out and saw {after}.",
        "After an hour the {kind} stopped, and there was {after}.",
    )
    st.fact("What did they see after the {kind}?", "{after}")
    st.say('"[How beautiful|Look at that]!" said {h}.', '"It was worth the wait," said {f}.')


@plot("The {Dish}")
def bake(st, depth):
    equal(st, "f")
    dish = pick(st.rng, list(FOODS))
    needs = list(FOODS[dish])
    st.rng.shuffle(needs)
    st.slots.update(dish=dish, n1=needs[0], n2=needs[1], n3=needs[2])
    name = friend_in(st)
    st.say(
        f"{{h}} wanted to make [a present|something good] for {name}: {{dish}}.",
        f"One {{weather}} day {{h}} said, \"Today I will make {{dish}} for {name.replace('{his}', 'my')}.\"",
    )
    st.fact("What did {h} make?", "{dish}")
    st.say("For that {he} needed {n1}, {n2} and {n3}.")
    st.fact("What did {h} need?", "{n1}, {n2} and {n3}")
    st.new_paragraph()
    st.say("{He} had {n1} and {n2}, but no {bare}.".replace("{bare}", needs[2].removeprefix("a ")))
    st.say('So {he} went to {wtitle}. "Do you have {n3} for me?" {he} asked.', "{He} asked {wtitle} for {n3}.")
    st.fact("Who gave {h} {n3}?", "{w}")
    if depth < 2 and st.chance(0.35):
        equal(st, "w")
        side_quest(st, depth)
        equal(st, "f")
    st.say(
        "{w} gave {him} {n3} [and smiled|and wished {him} luck|from {whis} [kitchen|garden]].",
        '"Here you are," said {w}.',
    )
    st.new_paragraph()
    st.say(
        "At home {h} [mixed|stirred] everything [in a big bowl|with a long spoon]. "
        "Soon it smelled [good|sweet|wonderful].",
        "{h} worked in the kitchen [until noon|all morning]. [It smelled wonderful.|There was flour on {his} nose.]",
    )
    st.say(
        'Then {he} brought the {dish} to {f}. "For me?" asked {f}. "[Thank you|How kind of you]!"',
        'When {f} came, the table was ready. "[Surprise|This is for you]!" said {h}.',
    )
    st.say("They ate it together, and it was [very good|delicious|gone in no time].")


@plot("The Way Home", outdoors=True)
def astray(st, depth):
    st.slots["lure"] = pick(
        st.rng,
        (
            "a blue butterfly",
            "a white rabbit",
            "a golden leaf",
            "a little bird",
            "a shiny beetle",
            "a long line of ants",
        ),
    )
    go_out(st)
    st.say("There {he} saw {lure} and [followed it|went after it].", "{He} followed {lure}, farther and farther.")
    st.fact("What did {h} follow?", "{lure}")
    st.new_paragraph()
    st.say(
        "Soon {he} did not know where {he} was.",
        "When {he} looked up, [everything looked strange|nothing looked like home].",
    )
    feel_sad(st)
    if st.chance(0.4):
        obstacle(st)
    meet_helper(st)
    st.say('"I am lost," said {h}. "I want to go home."', '"I do not know the way home," said {h}.')
    maybe_quest(st, depth)
    sign = pick(st.rng, ("the old mill", "the tall oak", "the church tower", "the stone bridge", "the red barn"))
    st.slots["sign"] = sign
    st.say(
        '"Do you see {sign}? [Your home is just behind it|From there it is not far]," said {e}.',
        '"Come with me," said {e}. "We only have to walk to {sign}."',
    )
    st.fact("Who showed {h} the way?", "{e}")
    st.say("They walked [together |]to {sign}, and there {h} saw [{his} house|the lights of home].")
    st.fact("Where did they walk?", "to {sign}")
    thanks(st)


@plot("The Little {Baby}", outdoors=True)
def rescue(st, depth):
    baby, trouble, cure = pick(st.rng, BABIES)
    st.slots["baby"] = baby
    st.slots["trouble"] = render(trouble, st.rng)
    st.slots["cure"] = cure
    go_out(st)
    st.say(
        "There {he} heard a [small|thin|sad] voice.", "Then {he} heard something [move|cry] [close by|not far away]."
    )
    st.say("It was a little {baby} that {trouble}.")
    st.fact("What did {h} find?", "a little {baby}")
    st.fact("What was wrong with the {baby}?", "it {trouble}")
    st.say(
        '"Poor little {baby}," said {h}. "[I will help you|Do not be afraid]."',
        '"[Please help me|Help]!" [cried|said] the {baby}.',
    )
    if st.chance(0.5):
        st.say("{He} tried [alone|once, and then again], but it was too hard.")
        meet_helper(st)
        maybe_quest(st, depth)
        st.say("Together they {cure}.")
    else:
        equal(st, "f")
        st.slots["e"] = f"the {baby}"
        st.say("{He} {cure}.", "[Very carefully|With gentle hands], {he} {cure}.")
    alone = st.slots["e"] == f"the {baby}"
    st.fact(
        "What did {he} do for the {baby}?" if alone else "What did they do?", "{he} {cure}" if alone else "they {cure}"
    )
    st.say('The {baby} was safe again. "[Thank you|I will never forget this]," it said.')
    if alone and not st.later and st.chance(0.35):
        st.new_paragraph()
        st.say(
            "A week later, {h} [dropped {his} key into a deep hole|could not find the way home in the fog|"
            "was caught in {p} by a storm]."
        )
        st.say("But the {baby} remembered {him}. It came and [helped {him}|brought help] at once.")
        st.fact("Who helped {h} a week later?", "the {baby}")


@plot("The Contest")
def contest(st, depth):
    equal(st, "f")
    what = pick(st.rng, list(CONTESTS))
    did, where, verb = CONTESTS[what]
    st.slots.update(what=what, did=did, where=where, verb=verb)
    st.say("One day there was {what} {at}.", "Soon there would be {what} {at}, and everyone talked about it.")
    st.fact("What was there {at}?", "{what}")
    st.say(
        "{h} wanted to win, but {he} did not {verb} very well.",
        '"I want to win," said {h}. But {he} could not {verb} very well yet.',
    )
    name = friend_in(st)
    st.say(
        f'"You only have to practice," said {name}.',
        f"{name if name == '{f}' else '{His}' + name[len('{his}'):]} said, \"Practice a little every day.\"",
    )
    st.new_paragraph()
    st.say(
        "So {h} {did} {where} every [day|morning|evening], "
        "[and it went better each time|for a whole week|even when {he} was tired]."
    )
    st.fact("Where did {h} practice?", "{where}")
    if st.chance(0.4):
        st.say('{wtitle} saw {him} and gave {him} good advice: "[Slow down|Take a deep breath|Do not give up]."')
        st.fact("Who gave {h} advice?", "{w}")
    st.say("Then the [big |great ]day came.", "At last the day of the contest came.")
    if st.chance(0.5):
        st.say("{h} {did} better than ever, and {he} won [first prize|a golden cup|a big ribbon]!")
        st.fact("Who won?", "{h}")
        st.say('"[I knew it|Well done]!" said {f}.')
    else:
        st.say("{h} {did} well, but {f} {did} even better and won.")
        st.fact("Who won?", "{f}")
        st.say('"[Well done|You were great]!" said {h}, and {he} [meant it|clapped the loudest].')


@plot("{H} Is Brave", outdoors=True)
def fear(st, depth):
    equal(st, "f")
    what = pick(st.rng, list(FEARS))
    scene, aid, brave = FEARS[what]
    st.slots.update(what=what)
    st.slots["aid"] = render(aid, st.rng, st.slots)
    st.slots["brave"] = render(brave, st.rng, st.slots)
    if st.later:
        go_out(st)
    st.say(
        "But there was one thing {h} did not like: {what}.",
        "{h} was afraid of {what}.",
        "Only one thing could frighten {h}: {what}.",
    )
    st.fact("What was {h} afraid of?", "{what}")
    if not st.later:
        go_out(st)
    st.new_paragraph()
    st.say(scene)
    st.say("{h} [began to shake|stood still|wanted to run away].", '"I cannot do it," said {h}.')
    name = friend_in(st)
    st.say(
        f'But {name} was with {{him}}. "[I am here|You are not alone|We can do it together]," said {{f}}.',
        f'"Do not be afraid," said {name}. "[I was afraid too, once|Everyone is afraid of something]."',
    )
    st.say("{f} {aid}.", "Then {f} {aid}.")
    st.fact("Who helped {h}?", "{f}")
    st.say(
        "{h} took a deep breath, and after a while {he} {brave}.", "Slowly, {h} felt better. In the end {he} {brave}!"
    )
    st.say('"It is not so bad," {he} said.', '"[Look|See]! I did it!" {he} [said|cried].')


@plot("The {Plant}")
def seed(st, depth):
    equal(st, "f")
    plant = pick(st.rng, list(PLANTS))
    size, gift = PLANTS[plant]
    st.slots.update(plant=plant, gift=gift, size=render(size, st.rng))
    st.say("One [spring |]day {wtitle} gave {him} a [small|tiny|round] seed.", "In spring, {wtitle} gave {h} a seed.")
    st.fact("Who gave {h} a seed?", "{w}")
    st.say("{h} put it into the [earth|ground] [behind the house|next to the door|by the fence] and gave it water.")
    st.say("Every [day|morning] {he} [looked at the ground|came with water], but nothing [grew|happened].")
    st.new_paragraph()
    name = friend_in(st)
    st.say(
        f'"Maybe it is [too cold|a bad seed|asleep]," said {{h}} to {name}. '
        '"[Wait|You must wait|Give it time]," said {f}. "Good things are slow."'
    )
    if st.chance(0.4):
        st.say(
            "A [hungry |]snail came, but {h} carried it to [the meadow|another leaf].",
            "There was no rain for [two|three] weeks, so {h} carried water [from the well|from the river] every day.",
        )
    st.say(
        "Then, one morning, a green [leaf|tip] looked out of the ground.",
        "After [two|three] weeks there was a [tiny|small] green leaf.",
    )
    st.say("It grew and grew. By [summer|autumn] it was a {plant}, {size}.")
    st.fact("What grew from the seed?", article(plant))
    st.say(
        "{h} [picked|gathered] the {gift} and shared [them|everything] with {f}."
        if gift != "soup"
        else "{h} made soup from it and shared it with {f}."
    )
    st.fact("Who did {h} share with?", "{f}")


@plot("The Strange Noise")
def mystery(st, depth):
    noise = pick(st.rng, list(NOISES))
    cause, where = NOISES[noise]
    st.slots.update(noise=noise, where=where, cause=render(cause, st.rng))
    st.say("One night {h} heard {noise}.", "One evening {h} lay in bed and heard {noise} near the {where}.")
    st.fact("What did {h} hear?", "{noise}")
    st.say(
        '"Who is there?" {he} asked. [Nobody answered.|There was no answer.]',
        "{He} pulled the blanket over {his} head, but there it was again.",
    )
    equal(st, "f")
    name = friend_in(st)
    st.new_paragraph()
    st.say(
        f'In the morning {{he}} told {name} about it. "[Is it a ghost|Is it a monster]?" asked {{h}}. "Let us find'
        ' out," said {f}.',
        f'{{He}} [called|woke] {name}. "Let us look together," said {{f}}.',
    )
    if st.chance(0.4):
        obstacle(st)
    st.say(
        "They went to the {where}, [step by step|on tiptoe|very quietly], and looked.",
        "With a lamp in {his} hand, {h} went to the {where}.",
    )
    st.say("It was only {cause}!", "And what did they see? It was {cause}!")
    st.fact("What made the noise?", "{cause}")
    st.say("{h} and {f} laughed [and laughed|until they cried|at themselves].", '"So that was my monster," said {h}.')


OPEN_AIR = frozenset(("kite", "boat", "wagon"))


def second_adventure(st):
    """Another plot with the same people. Questions that both adventures could answer are dropped."""
    first, st.facts = st.facts, []
    name = pick(st.rng, [n for n in ("storm", "astray", "rescue", "fear") if n != st.plot])
    st.later = True
    st.move(True)
    st.new_paragraph()
    PLOTS[name](st, 1)
    asked = {q for q, _ in st.facts}
    told = {q for q, _ in first}
    st.facts = [f for f in first if f[0] not in asked] + [f for f in st.facts if f[0] not in told]
    st.facts = [f for f in st.facts if not f[0].startswith(("Where was", "Who helped", "What did they do"))]


def tell(rng, hero=None, thing=None):
    """A whole story. `hero` and `thing` are wishes that the story honours."""
    st = Story(rng)
    if hero is not None:
        st.hero = hero
        st.cast("", hero)
        while st.friend.name == hero.name:
            st.friend = animal(rng)
        st.cast("f", st.friend)
    if thing is not None:
        st.thing = thing
    st.set_thing(st.thing, st.color)
    names = [n for n in PLOTS if thing is None or PLOTS[n].uses_thing]
    # The plots that need a thing are told more often: they compose with errands most.
    names += [n for n in names if PLOTS[n].uses_thing]
    st.plot = pick(rng, names)
    st.move(PLOTS[st.plot].outdoors or st.thing in OPEN_AIR)
    opening(st)
    PLOTS[st.plot](st, 0)
    if rng.random() < 0.2:
        second_adventure(st)
    ending(st)
    s = st.slots
    titles = {
        "O": s["o"],
        "H": s["h"],
        "F": s["f"],
        "Dish": s.get("dish", ""),
        "Baby": s.get("baby", ""),
        "Plant": s.get("plant", ""),
    }
    st.title = render(PLOTS[st.plot].title, rng, {k: v.title() for k, v in titles.items()})
    return st
