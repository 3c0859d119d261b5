#!/usr/bin/env python3
"""Writes src/text/unicode_table.h: the general categories of Unicode 15.1 that pre-tokenisers ask for, as ranges.

Tokenizers are frozen with the Unicode version they were made with, so the version is fixed and a newer one is refused.
Needs the package unicodedata2 15.1.0, or a Python whose own unicodedata is of that version.

    tools/unicode_table.py > src/text/unicode_table.h
"""
import sys
import unicodedata

VERSION = "15.1.0"
if unicodedata.unidata_version != VERSION:
    import unicodedata2 as unicodedata
if unicodedata.unidata_version != VERSION:
    sys.exit(f"error: Unicode {VERSION} is needed, this is {unicodedata.unidata_version}")

WHITE_SPACE = {*range(0x09, 0x0E), 0x20, 0x85, 0xA0, 0x1680, *range(0x2000, 0x200B), 0x2028, 0x2029, 0x202F, 0x205F, 0x3000}
CLASSES = {"L": 1, "N": 2, "M": 3, "P": 4, "S": 5}  # enum CharClass; 0 is other
SPACE = 6
PER_LINE = 10


def char_class(code):
    if code in WHITE_SPACE:
        return SPACE
    return CLASSES.get(unicodedata.category(chr(code))[0], 0)


ranges = []
for code in range(0x110000):
    value = char_class(code)
    if not ranges or ranges[-1] & 0xFF != value:
        ranges.append(code << 8 | value)

print(f"// Made by tools/unicode_table.py from Unicode {VERSION}; not to be edited.")
print("//")
print("// Each entry is (first code point << 8 | CharClass) of a stretch that ends where the next one starts.")
print("#pragma once\n")
print("#include <cstdint>\n")
print("namespace conclave {\n")
print("// clang-format off")
print("inline constexpr std::uint32_t kUnicodeTable[] = {")
for start in range(0, len(ranges), PER_LINE):
    print("    " + " ".join(f"0x{value:08x}," for value in ranges[start:start + PER_LINE]))
print("};")
print("// clang-format on\n")
print("}  // namespace conclave")
print(f"{len(ranges)} ranges", file=sys.stderr)
