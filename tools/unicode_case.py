#!/usr/bin/env python3
"""Writes src/text/template_case_table.h: Python's own upper() and lower() of every character, as few rows as it takes."""

import sys
import unicodedata

LAST = 0x110000


def simple_rows(mapping):
    """Ranges [first, last] with a step of 1 or 2 and one distance."""
    rows = []
    for code in sorted(mapping):
        delta = mapping[code] - code
        if rows:
            first, last, step, row_delta = rows[-1]
            gap = code - last
            if delta == row_delta and gap in (1, 2) and (step == 0 or gap == step):
                rows[-1] = (first, code, gap, delta)
                continue
        rows.append((code, code, 0, delta))
    return [(first, last, step or 1, delta) for first, last, step, delta in rows]


def split(convert):
    simple, special = {}, {}
    for code in range(LAST):
        if 0xD800 <= code < 0xE000:
            continue
        text = convert(chr(code))
        if text == chr(code):
            continue
        if len(text) == 1:
            simple[code] = ord(text)
        else:
            special[code] = text
    return simple_rows(simple), special


def main():
    out = sys.stdout
    out.write("// Upper and lower case of every character, from Unicode %s. Written by tools/unicode_case.py.\n" % unicodedata.unidata_version)
    out.write("#pragma once\n\n#include <cstdint>\n\nnamespace conclave::jinja {\n\n")
    out.write("// Every `step`-th character from `first` to `last` has its other case `delta` away.\n")
    out.write("struct CaseRow {\n  char32_t first;\n  char32_t last;\n  std::int32_t step;\n  std::int32_t delta;\n};\n\n")
    out.write("// The other case of these is several characters, in UTF-8.\n")
    out.write("struct CaseSpecial {\n  char32_t from;\n  const char* to;\n};\n\n")
    out.write("// clang-format off\n")
    for name, convert in (("Upper", str.upper), ("Lower", str.lower)):
        rows, special = split(convert)
        for kind, cells in (
            ("CaseRow k%sRows" % name, ["{0x%X, 0x%X, %d, %d}" % row for row in rows]),
            ("CaseSpecial k%sSpecials" % name,
             ['{0x%X, "%s"}' % (code, "".join("\\x%02X" % b for b in text.encode())) for code, text in special.items()]),
        ):
            out.write("inline constexpr %s[] = {\n" % kind)
            line = ""
            for cell in cells:
                if len(line) + len(cell) + 2 > 116:
                    out.write("   " + line + "\n")
                    line = ""
                line += " " + cell + ","
            out.write("   " + line + "\n};\n\n")
    out.write("// clang-format on\n\n}  // namespace conclave::jinja\n")


main()
