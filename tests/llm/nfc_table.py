"""Writes src/llm/nfc.inc from Python's unicodedata: python tests/llm/nfc_table.py > src/llm/nfc.inc"""
import unicodedata

rows = []
for c in range(0x110000):
    parts = unicodedata.decomposition(chr(c)).split()
    if not parts or parts[0].startswith("<"):
        continue
    if len(parts) == 1:
        rows.append(f"S(0x{c:x},0x{parts[0].lower()})")
    else:
        text = "".join(chr(int(p, 16)) for p in parts)
        kind = "P" if unicodedata.normalize("NFC", text) == chr(c) else "X"
        rows.append(f"{kind}(0x{c:x},0x{parts[0].lower()},0x{parts[1].lower()})")
runs = []
for c in range(0x110000):
    k = unicodedata.combining(chr(c))
    if not k:
        continue
    if runs and runs[-1][2] == k and runs[-1][1] == c - 1:
        runs[-1][1] = c
    else:
        runs.append([c, c, k])
rows += [f"C(0x{a:x},0x{b:x},{k})" for a, b, k in runs]

print(f"// Unicode {unicodedata.unidata_version}, by tests/llm/nfc_table.py. In order of code points: S(c, d): c decomposes to d;")
print("// P(c, a, b): c decomposes to a b, which compose to c; X: only decomposes; C(first, last, class): combining class.")
line = ""
for row in rows:
    if len(line) + len(row) + 1 > 138:
        print(line.rstrip())
        line = ""
    line += row + " "
print(line.rstrip())
