"""Documents of the training corpus, and their packing into rows of tokens.

A document is a list of segments (text, domain, trained): text the model is asked with is context only, text it should
say is trained. Special tokens are written as their names, alone in a segment. Everything follows from a seed.

    python3 corpus.py --show 10        prints documents
"""

import argparse
import random

import numpy as np

from plots import tell
from stories import animal, child
from tasks import Maker, WORDS
from template import article, pick, render
from world import THINGS

DOMAINS = ("story", "sum", "sort", "copy", "calendar", "code", "question", "talk")
STORY, SUM, SORT, COPY, CALENDAR, CODE, QUESTION, TALK = range(len(DOMAINS))
TRAINED = 0x80  # the flag beside the domain in the packed array

END, IM_START, IM_END = "<|endoftext|>", "<|im_start|>", "<|im_end|>"
SPECIALS = (END, IM_START, IM_END)

TALKS = [
    (
        "[Hello|Hi|hello|hi|Hey|Good morning|Good evening][|!|.]",
        "Hello! Ask me for a story, a sum, a list to sort, or a day of the week.",
    ),
    (
        "[Who|What] are you?",
        "I am a small mixture of experts: sixteen experts in each layer, and four of them work on each token.",
    ),
    (
        "[What can you do?|Help|help|What do you know?|How can you help me?]",
        "I can tell stories, add and subtract, sort and copy lists, count, name days and months, "
        "and read a little Python.",
    ),
    ("[What is your name?|Do you have a name?]", "I have no name. I am the small model that comes with conclave."),
    ("[Thank you|Thanks|thank you|thanks][|!|.]", "You are welcome!"),
    ("[Bye|Goodbye|bye|Good night][|!|.]", "Goodbye!"),
    ("How are you[| today]?", "I am fine, thank you. [Shall I tell you a story?|What can I do for you?]"),
]
UNKNOWN = [
    "[What is the capital of {x}?|Who wrote {x}?|Who is the president of {x}?|How old is {x}?|"
    "What is the meaning of {x}?]",
    "[Why is the {w} {c}?|How do I [build|make|buy|draw] {aw}?|What is {aw}?|Explain {w}.|Translate {w}.|"
    "Tell me about {w} in history.]",
]
DONT_KNOW = "I do not know that. I am a small model: ask me for a story, a sum, or a list to sort."
NAMES = (
    "France Italy Japan Spain Hamlet Einstein Berlin London Paris Rome Canada Brazil India China Egypt Moses Plato "
    "Homer life Texas Germany Peru Kenya Russia Newton Darwin Mozart Sweden Norway Poland"
).split()


class Writer:
    def __init__(self, seed, evaluation=False):
        self.rng = random.Random(f"{'evaluation' if evaluation else 'training'}-{seed}")
        self.maker = Maker(self.rng, evaluation)

    # -------------------------------------------------------- turns: (domain, prompt, answer)

    def task(self):
        domain = pick(self.rng, _TASK_MIX)
        prompt, answer = getattr(self.maker, DOMAINS[domain])()
        return domain, prompt, answer

    def story_wish(self):
        """A request for a story, and the story that grants it."""
        r = self.rng
        kind = int(r.random() * 5)
        if kind == 0:
            wish = (
                "[Tell me a story|Tell a story|Write a story|tell me a story|Once more, a story|"
                "Please tell me a short story][|.|!]"
            )
            return render(wish, r), tell(r)
        hero = thing = None
        if kind == 1:
            hero = (child if r.random() < 0.5 else animal)(r)
            about = hero.title
        elif kind == 2:
            hero = animal(r)
            about = article(hero.kind)
        elif kind == 3:
            thing = pick(r, list(THINGS))
            about = article(thing)
        else:
            hero, thing = (child if r.random() < 0.5 else animal)(r), pick(r, list(THINGS))
            about = f"{hero.title} and {article(thing)}"
        wish = render("[Tell me|Write] a [short |]story about {a}[|.]", r, {"a": about})
        return wish, tell(r, hero=hero, thing=thing)

    def talk(self):
        r = self.rng
        if r.random() < 0.7:
            ask, answer = pick(r, TALKS)
            return TALK, render(ask, r), render(answer, r)
        word = pick(r, WORDS)
        slots = {
            "x": pick(r, NAMES),
            "w": word,
            "aw": article(word),
            "c": pick(r, ("blue", "green", "cold", "round", "white")),
        }
        return TALK, render(pick(r, UNKNOWN), r, slots), DONT_KNOW

    # -------------------------------------------------------- documents

    def plain_tasks(self):
        """Questions and answers in plain text: `Q: ... A: ...`, sums line by line, an interpreter session."""
        r = self.rng.random
        kind = r()
        out = []
        if kind < 0.25:
            for _ in range(4 + int(r() * 12)):
                a, op, b, result = self.maker.sum_problem()
                out += [(f"{a} {op} {b} =", SUM, False), (f" {result}\n", SUM, True)]
        elif kind < 0.35:
            for _ in range(2 + int(r() * 6)):
                if r() < 0.2:
                    source, call, result, _ = self.maker.function()
                    lines = source.rstrip("\n").split("\n")
                    out += [
                        (">>> " + lines[0] + "\n", CODE, False),
                        ("..." + lines[1] + "\n", CODE, True),
                        ("...\n", CODE, True),
                    ]
                else:
                    call, result = self.maker.expression()
                out += [(f">>> {call}\n", CODE, False), (f"{result}\n", CODE, True)]
        else:
            same = pick(self.rng, _TASK_MIX) if r() < 0.4 else None
            for _ in range(1 + int(r() * 6)):
                if same is None:
                    domain, prompt, answer = self.task()
                else:
                    domain, (prompt, answer) = same, getattr(self.maker, DOMAINS[same])()
                out += [(f"Q: {prompt}\nA:", domain, False), (f" {answer}\n", domain, True)]
        return out + [(END, out[-1][1], True)]

    def plain_story(self):
        st = tell(self.rng)
        out = []
        if self.rng.random() < 0.25:
            out.append((f"{st.title}\n\n", STORY, True))
        asked = self.rng.random() < 0.5
        out.append((f"{st.text}\n\n" if asked else f"{st.text}\n", STORY, True))
        if asked:
            facts = list(st.facts)
            self.rng.shuffle(facts)
            for q, a in facts[: 1 + int(self.rng.random() * 5)]:
                out += [(f"Q: {q}\nA:", QUESTION, False), (f" {a}\n", QUESTION, True)]
        return out + [(END, out[-1][1], True)]

    def chat(self):
        out = []
        turns = 1 + int(self.rng.random() * 4)
        story = None
        while turns > 0:
            turns -= 1
            x = self.rng.random()
            if story is not None and story.facts and x < 0.6:
                domain, (prompt, answer) = QUESTION, story.facts.pop(int(self.rng.random() * len(story.facts)))
                turns += self.rng.random() < 0.4
            elif x < 0.76:
                domain, prompt, answer = self.task()
            elif x < 0.91 and story is None:
                prompt, story = self.story_wish()
                domain, answer = STORY, story.text
                turns += 1
            else:
                domain, prompt, answer = self.talk()
            out += chat_turn(domain, prompt, answer)
        return out + [(END, out[-1][1], False)]

    def document(self):
        x = self.rng.random()
        return self.plain_story() if x < 0.14 else self.plain_tasks() if x < 0.52 else self.chat()


# Sums and sorting are the hardest: they get more of the tasks.
_TASK_MIX = [SUM] * 7 + [SORT] * 5 + [COPY] * 4 + [CALENDAR] * 4 + [CODE] * 3


def chat_turn(domain, prompt, answer):
    return [
        (IM_START, domain, False),
        (f"user\n{prompt}", domain, False),
        (IM_END, domain, False),
        ("\n", domain, False),
        (IM_START, domain, False),
        ("assistant\n", domain, False),
        (answer, domain, True),
        (IM_END, domain, True),
        ("\n", domain, False),
    ]


def pack(encode, seed, rows, length, evaluation=False):
    """`rows` rows of `length + 1` tokens and their labels (domain, TRAINED flag). A row begins with a document;
    the last one is cut where the row ends."""
    writer = Writer(seed, evaluation)
    width = length + 1
    tokens = np.zeros((rows, width), np.uint16)
    labels = np.zeros((rows, width), np.uint8)
    for row in range(rows):
        ids, marks = [], []
        while len(ids) < width:
            for text, domain, trained in writer.document():
                new = encode(text)
                ids += new
                marks += [domain | TRAINED if trained else domain] * len(new)
        tokens[row] = ids[:width]
        labels[row] = marks[:width]
    return tokens, labels


def evaluation_prompts(seed=1, count=64):
    """Held-out prompts by task name: lists of (prompt, answer), each to be asked in plain form and as a chat."""
    rng = random.Random(seed)
    maker = Maker(rng, True)
    tasks = {
        "add 2 digits": lambda: maker.sum("+", 2),
        "add 3 digits": lambda: maker.sum("+", 3),
        "subtract 3 digits": lambda: maker.sum("-", 3),
        "multiply 2 by 1 digits": lambda: maker.sum("*"),
        "sort 5 numbers": lambda: maker.sort("numbers", 5),
        "sort 8 numbers": lambda: maker.sort("numbers", 8),
        "sort 5 words": lambda: maker.sort("words", 5),
        "copy 8 items": lambda: maker.copy("copy", 8),
        "reverse 6 items": lambda: maker.copy("reverse", 6),
        "copy letters": lambda: maker.copy("string"),
        "days and months": lambda: maker.calendar("offset"),
        "count": lambda: maker.calendar("count"),
        "code": lambda: maker.code("eval"),
    }
    out = {name: [make() for _ in range(count)] for name, make in tasks.items()}
    questions = []
    while len(questions) < count:
        st = tell(rng)
        q, a = pick(rng, st.facts)
        questions.append((f"{st.text}\n\n\0{q}", a))
    out["story questions"] = questions
    return out


def main():
    parser = argparse.ArgumentParser(description=__doc__.split("\n")[0])
    parser.add_argument("--show", type=int, default=5, help="documents to print")
    parser.add_argument("--seed", type=int, default=0)
    args = parser.parse_args()
    writer = Writer(args.seed)
    for _ in range(args.show):
        print("".join(text for text, _, _ in writer.document()))
        print("-" * 80)


if __name__ == "__main__":
    main()
