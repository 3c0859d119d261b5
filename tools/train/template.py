"""A tiny text template: `[a|b|c]` picks one of its branches, `{name}` is a slot; both nest.

A template is parsed once and rendered many times, with a random generator and a dict of slots.
"""


def _parse(text, at, stop):
    """Parses from `at` to one of the characters in `stop`: (parts, where it stopped)."""
    parts, begin = [], at
    while at < len(text) and text[at] not in stop:
        if text[at] == "[":
            if at > begin:
                parts.append(text[begin:at])
            branches = []
            while text[at] != "]":
                branch, at = _parse(text, at + 1, "|]")
                branches.append(branch)
            parts.append(branches)
            begin = at + 1
        elif text[at] == "{":
            if at > begin:
                parts.append(text[begin:at])
            end = text.index("}", at)
            parts.append((text[at + 1 : end],))
            at = end
            begin = at + 1
        at += 1
    if at > begin:
        parts.append(text[begin:at])
    return parts, at


def _render(parts, random, slots, out):
    for part in parts:
        if part.__class__ is str:
            out.append(part)
        elif part.__class__ is tuple:
            out.append(slots[part[0]])
        else:
            _render(part[int(random() * len(part))], random, slots, out)


_cache = {}


def render(text, rng, slots=None):
    """The text with every choice made by `rng` and every slot filled from `slots`."""
    parts = _cache.get(text)
    if parts is None:
        parts = _cache[text] = _parse(text, 0, "")[0]
    out = []
    _render(parts, rng.random, slots or {}, out)
    return "".join(out)


def pick(rng, items):
    return items[int(rng.random() * len(items))]


def article(noun_phrase):
    return ("an " if noun_phrase[0] in "aeiou" else "a ") + noun_phrase


def sentence_case(text):
    return text[:1].upper() + text[1:]
