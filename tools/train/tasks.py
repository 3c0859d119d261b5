"""The tasks with one right answer: sums, sorting, copying, calendar and counting, a little code.

Every maker returns (prompt, answer). `held(...)` splits each space of problems by a hash of the problem: training
takes one side, evaluation the other, so no evaluated problem was ever trained. Spaces too small to generalise from
(one-digit sums, the multiplication table, single days) are not split; evaluation then does not ask for them.
"""

import zlib

from template import pick, render

WORDS = (
    "apple bear bird boat book bread cake cat chair cloud cup day dog door duck egg farm fish flower fox frog garden "
    "glass goat gold green hand hat hill home honey horse house ice jam key king kite lake lamp leaf lemon light lion "
    "map milk moon mouse nest night nut ocean orange owl paper park pen pig pond queen rabbit rain red ring river road "
    "rock rose salt sand sea ship snow song spoon star stone sun table tea tent tiger train tree water wind window "
    "wolf wood yard zebra"
).split()
DAYS = "Monday Tuesday Wednesday Thursday Friday Saturday Sunday".split()
MONTHS = "January February March April May June July August September October November December".split()
LENGTHS = (31, 28, 31, 30, 31, 30, 31, 31, 30, 31, 30, 31)
LETTERS = "abcdefghijklmnopqrstuvwxyz"


class Maker:
    """Draws problems for one side of the split."""

    def __init__(self, rng, evaluation):
        self.rng = rng
        self.evaluation = evaluation

    def mine(self, *key):
        return (zlib.crc32(repr(key).encode()) % 16 == 0) == self.evaluation

    def form(self, text, **slots):
        return render(text, self.rng, slots)

    # -------------------------------------------------------- sums

    def number(self, digits):
        return int(self.rng.random() * 10**digits)

    def sum_problem(self, what=None, digits=None):
        """(a, op, b, result); `what` is one of + - *, `digits` the size of the larger operand."""
        r = self.rng.random
        while True:
            op = what or pick(self.rng, "+++++---*")
            if op == "*":
                if not self.evaluation and r() < 0.5:
                    a, b = int(r() * 13), int(r() * 13)
                else:
                    a, b = 10 + int(r() * 90), 2 + int(r() * 8)
                if r() < 0.3:
                    a, b = b, a
                if min(a, b) <= 12 and max(a, b) <= 12:
                    if self.evaluation:
                        continue
                elif not self.mine("*", min(a, b), max(a, b)):
                    continue
                return a, "*", b, a * b
            big = digits or (1, 2, 2, 2, 3, 3, 3, 3, 3)[int(r() * 9)]
            small = big if r() < 0.7 else 1 + int(r() * big)
            a, b = self.number(big), self.number(small)
            if r() < 0.5 and op == "+":
                a, b = b, a
            if op == "-" and a < b:
                a, b = b, a
            if a < 10 and b < 10:
                if not self.evaluation:
                    return a, op, b, a + b if op == "+" else a - b
            elif self.mine(op, a, b):
                return a, op, b, a + b if op == "+" else a - b

    def sum(self, what=None, digits=None):
        a, op, b, result = self.sum_problem(what, digits)
        form = int(self.rng.random() * 8)
        if form < 3:
            return f"{a} {op} {b} = ?", str(result)
        if form == 3:
            return f"{a} {op} {b} =", str(result)
        if form == 4:
            return f"{a}{op}{b}", str(result)
        if form == 5:
            return f"{a} {op} {b}", str(result)
        if form == 6:
            word = {"+": "plus", "-": "minus", "*": "times"}[op]
            return self.form("[What is|How much is] {a} {w} {b}?", a=str(a), b=str(b), w=word), str(result)
        prompt = self.form("[What is|How much is|Calculate|What is] {a} {op} {b}[?|?|]", a=str(a), b=str(b), op=op)
        return prompt, f"{a} {op} {b} = {result}"

    # -------------------------------------------------------- sorting, copying

    def numbers(self, count=None, top=None):
        r = self.rng.random
        top = top or (10, 100, 100, 100, 1000)[int(r() * 5)]
        while True:
            items = [int(r() * top) for _ in range(count or 2 + int(r() * 7))]
            if len(items) < 4 and not self.evaluation or len(items) >= 4 and self.mine("list", items):
                return items

    def words(self, count=None):
        while True:
            items = self.rng.sample(WORDS, count or 2 + int(self.rng.random() * 6))
            if len(items) < 4 and not self.evaluation or len(items) >= 4 and self.mine("words", items):
                return items

    def sort(self, kind=None, count=None):
        numeric = kind == "numbers" or kind is None and self.rng.random() < 0.65
        items = self.numbers(count, 100 if kind else None) if numeric else self.words(count)
        down = kind is None and self.rng.random() < 0.2
        result = sorted(items, reverse=down)
        comma = pick(self.rng, (" ", ", "))
        text, answer = comma.join(map(str, items)), comma.join(map(str, result))
        what = "numbers" if numeric else "words"
        wish = "[Sort|Sort|sort|Sort these {what}|Sort the {what}|Please sort|Put in order]"
        if down:
            ways = "from [large to small|high to low]|Sort these {what} backwards|Sort in reverse order"
            wish = f"[Sort down|Sort {ways}]"
        return self.form(wish + ": {items}", what=what, items=text), answer

    def items(self, count=None):
        """A mixed list for copying: words, numbers, letters."""
        r = self.rng.random
        while True:
            kind = int(r() * 4)
            n = count or 1 + int(r() * 10)
            if kind == 0:
                out = [pick(self.rng, WORDS) for _ in range(n)]
            elif kind == 1:
                out = [str(self.number(1 + int(r() * 3))) for _ in range(n)]
            elif kind == 2:
                out = [pick(self.rng, LETTERS) for _ in range(n)]
            else:
                out = [pick(self.rng, WORDS) if r() < 0.5 else str(self.number(2)) for _ in range(n)]
            if n < 4 and not self.evaluation or n >= 4 and self.mine("copy", out):
                return out

    def copy(self, what=None, count=None):
        kind = what or pick(self.rng, ("copy", "copy", "reverse", "reverse", "string", "times", "ends"))
        if kind == "copy":
            text = " ".join(self.items(count))
            return self.form("[Copy|Copy|copy|Repeat|Say|Repeat after me|Echo]: {t}", t=text), text
        if kind == "reverse":
            items = self.items(count)
            comma = pick(self.rng, (" ", " ", ", "))
            prompt = self.form("[Reverse|Reverse|reverse|Reverse this list|Turn around]: {t}", t=comma.join(items))
            return prompt, comma.join(reversed(items))
        if kind == "string":
            n = 4 + int(self.rng.random() * 9)
            text = "".join(pick(self.rng, LETTERS) for _ in range(n))
            return (f"Copy: {text}", text) if self.mine("string", text) else self.copy("string")
        items = self.items(count)
        if kind == "times":
            n = 2 + int(self.rng.random() * 5)
            return self.form("[Say|Repeat|Write] {w} {n} times", w=items[0], n=str(n)), " ".join([items[0]] * n)
        first = self.rng.random() < 0.5
        prompt = f"What is the {'first' if first else 'last'} of: {' '.join(items)}"
        return prompt, items[0 if first else -1]

    # -------------------------------------------------------- calendar and counting

    def calendar(self, what=None):
        r = self.rng.random
        kind = what or pick(self.rng, ("next", "offset", "offset", "count", "count", "number", "length", "list"))
        if kind in ("next", "offset"):
            names, unit = (DAYS, "day") if r() < 0.6 else (MONTHS, "month")
            i = int(r() * len(names))
            if kind == "next":
                way = 1 if r() < 0.5 else -1
                word = "after" if way > 0 else "before"
                prompt = self.form("[What|Which] {u} [comes|is] {w} {d}?", u=unit, w=word, d=names[i])
                return prompt, names[(i + way) % len(names)]
            n, way = 2 + int(r() * (len(names) * 2 - 2)), 1 if r() < 0.7 else -1
            if not self.mine(unit, i, n, way):
                return self.calendar("offset")
            word = "after" if way > 0 else "before"
            prompt = self.form("[What|Which] {u} is {n} {u}s {w} {d}?", u=unit, n=str(n), w=word, d=names[i])
            return prompt, names[(i + way * n) % len(names)]
        if kind == "count":
            start, n, step = int(r() * 90), 3 + int(r() * 9), pick(self.rng, (1, 1, 1, 2, 3, 5, 10))
            end = start + step * (n - 1)
            if not self.mine("count", start, end, step):
                return self.calendar("count")
            run = [str(x) for x in range(start, end + 1, step)]
            by = f" by {step}" if step > 1 else ""
            if r() < 0.3:
                return f"Count down{by} from {end} to {start}", " ".join(reversed(run))
            return self.form("[Count|Count|count]{by} from {a} to {b}", by=by, a=str(start), b=str(end)), " ".join(run)
        if kind == "number":
            n = 1 + int(r() * 998)
            if not self.mine("next", n):
                return self.calendar("number")
            if r() < 0.3:
                m = self.number(3)
                return self.form("Which is [larger|bigger], {a} or {b}?", a=str(n), b=str(m)), str(max(n, m))
            way = 1 if r() < 0.6 else -1
            word = "after" if way > 0 else "before"
            return self.form("What [number |]comes {w} {n}?", w=word, n=str(n)), str(n + way)
        if kind == "length":
            i = int(r() * 14)
            if i == 12:
                return "How many days are in a week?", "7"
            if i == 13:
                return "How many months are in a year?", "12"
            return self.form("How many days [are in|has|are there in] {m}?", m=MONTHS[i]), str(LENGTHS[i])
        names, unit = (DAYS, "days of the week") if r() < 0.5 else (MONTHS, "months of the year")
        return self.form("[Name|Say|List|What are] the {u}[|.]", u=unit), " ".join(names)

    # -------------------------------------------------------- code

    def expression(self):
        """One line of Python and what the interpreter prints for it."""
        r = self.rng.random
        kind = int(r() * 12)
        if kind < 3:
            a, op, b, result = self.sum_problem(digits=pick(self.rng, (1, 2, 2)))
            return f"{a} {op} {b}", str(result)
        word, other = pick(self.rng, WORDS), pick(self.rng, WORDS)
        q = pick(self.rng, "'\"")
        if kind == 3:
            return f"len({q}{word}{q})", str(len(word))
        if kind == 4:
            return f"{q}{word}{q} + {q}{other}{q}", repr(word + other)
        if kind == 5:
            return f"{q}{word}{q}.upper()", repr(word.upper())
        if kind == 6:
            n = 2 + int(r() * 3)
            return f"{q}{word}{q} * {n}", repr(word * n)
        if kind == 7:
            a, n = int(r() * 20), 2 + int(r() * 7)
            if r() < 0.5:
                return f"list(range({n}))", repr(list(range(n)))
            return f"list(range({a}, {a + n}))", repr(list(range(a, a + n)))
        items = self.numbers(4 + int(r() * 3), 100)
        if kind == 8:
            return f"sorted({items})", repr(sorted(items))
        if kind == 9:
            name = pick(self.rng, ("max", "min"))
            return f"{name}({items})", repr(max(items) if name == "max" else min(items))
        if kind == 10:
            i = int(r() * len(items))
            return f"{items}[{i}]", repr(items[i])
        return (f"len({items})", repr(len(items))) if r() < 0.5 else (f"{items}[::-1]", repr(items[::-1]))

    FUNCTIONS = [
        ("double", "n", "n * 2", "doubles a number", lambda a: a * 2),
        ("square", "n", "n * n", "squares a number", lambda a: a * a),
        ("increment", "n", "n + 1", "adds one to a number", lambda a: a + 1),
        ("add_ten", "n", "n + 10", "adds ten to a number", lambda a: a + 10),
        ("half", "n", "n // 2", "halves a number", lambda a: a // 2),
        ("is_even", "n", "n % 2 == 0", "tells if a number is even", lambda a: a % 2 == 0),
        ("is_big", "n", "n > 50", "tells if a number is larger than fifty", lambda a: a > 50),
        ("last_digit", "n", "n % 10", "gives the last digit of a number", lambda a: a % 10),
        ("minus_five", "n", "n - 5", "takes five from a number", lambda a: a - 5),
    ]

    def function(self):
        """(source, call, result, description) of a tiny function."""
        name, arg, body, about, run = pick(self.rng, self.FUNCTIONS)
        value = int(self.rng.random() * (13 if name == "square" else 100))
        return f"def {name}({arg}):\n    return {body}\n", f"{name}({value})", repr(run(value)), about

    def code(self, what=None):
        r = self.rng.random
        if what == "eval" or what is None and r() < 0.6:
            line, result = self.expression()
            return self.form("[>>> {e}|>>> {e}|What does Python print for {e} ?|print({e})]", e=line), result
        source, call, result, about = self.function()
        if r() < 0.5:
            return self.form("Write a [Python |]function that {a}.", a=about), source.rstrip()
        return f"{source}\nWhat is {call}?", result
