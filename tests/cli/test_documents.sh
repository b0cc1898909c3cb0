#!/usr/bin/env bash
# What docs/operations.md and README.md name is there: every setting with its default in the table, every path of the
# status, every command and option of the examples.
. "$(dirname "$0")/lib.sh"
root=$(readlink -f "$(dirname "$0")/../..")
page=$root/docs/operations.md

read -r port_a port_b < <(two_ports)
list="a=tcp://127.0.0.1:$port_a,b=tcp://127.0.0.1:$port_b"
start_berthd a --lock off --name a --peers "$list"
run 0 berth status --json
cp "$scratch/out" "$scratch/status"
run 0 "$bin/berthd" --help
cp "$scratch/out" "$scratch/settings"
run 0 berth help --json
cp "$scratch/out" "$scratch/commands"

check "settings, paths and commands" python3 - "$root" "$scratch" <<'PYTHON'
import json, pathlib, re, sys

root, scratch = map(pathlib.Path, sys.argv[1:])
page = (root / "docs/operations.md").read_text()
texts = {name: (root / name).read_text() for name in ("README.md", "docs/operations.md", "docs/benchmarks.md", "docs/guarantees.md")}
bad = []

# The table of settings: name, value, range, default, which change without a restart, and which have to be the same.
said = re.findall(r"^  --(\S+) (\S+) *\n? +(\S.*) \((?:([^()]*), )?default (.*)\)$", (scratch / "settings").read_text(), re.M)
rows = [[c.strip().replace("\\|", "|") for c in re.split(r"(?<!\\)\|", line)[1:-1]]
        for line in re.findall(r"^\| `[a-z-]+` \|.*\| (?:reload|restart|empty region|new region) \|.*$", page, re.M)]
table = {row[0].strip("`"): row for row in rows}
settings = {name: (value, range_, default) for name, value, _, range_, default in said if name != "config"}
if len(settings) < 30 or table.keys() != settings.keys():
    bad.append(f"settings: {sorted(table.keys() ^ settings.keys())} are on one side only")
bad += [f"setting {n}: {table[n][1:4]} is said, {v} is" for n, v in settings.items() if n in table and table[n][1:4] != list(v)]
reloaded = [n.lower().replace("_", "-") for n in re.findall(r"\[SET_(\w+)\] = true", (root / "store/shell/reload.c").read_text())]
changes = {n for n, row in table.items() if row[4] == "reload"}
if len(changes) != len(reloaded) or not all(any(c.startswith(r) for c in changes) for r in reloaded):
    bad.append(f"without a restart: {sorted(changes)} in the page, {sorted(reloaded)} in reload.c")
same = {n for n, row in table.items() if row[5] == "same"}
if same != {"cluster", "peers", "homes", "tombstones", "fresh", "replaceable"}:
    bad.append(f"the same on all nodes: {sorted(same)}")

# Paths of the status. `peers[].a`, `.b`: the second is of the first's object; PEER stands for a name.
def find(node, path):
    for name in path.replace("[]", ".0").split("."):
        if isinstance(node, list):
            node = node[0] if node else None
        elif isinstance(node, dict):
            node = next(iter(node.values()), None) if name == "PEER" else node.get(name)
        else:
            return None
    return node

status = json.loads((scratch / "status").read_text())
paths = 0
for line in page.splitlines():
    above = ""
    for path in re.findall(r"`([a-z]*(?:\[\])?(?:\.[a-zA-Z_]+)+)`", line):
        above = above if path.startswith(".") else path.rsplit(".", 1)[0]
        whole = above + path if path.startswith(".") else path
        if whole.split("[")[0].split(".")[0] in status:
            paths += 1
            if find(status, whole) is None:
                bad.append(f"no {whole} in the status")
if paths < 50:
    bad.append(f"only {paths} paths were found")

# Commands in code, and their options.
help_ = json.loads((scratch / "commands").read_text())
commands = {c["name"]: {o["name"] for o in c["options"]} for c in help_["commands"]}
everywhere = {o["name"] for o in help_["options"]}
uses = 0
for name, text in texts.items():
    code = re.findall(r"^```\w*\n(.*?)^```", text, re.M | re.S) + re.findall(r"`([^`\n]+)`", text)
    for line in "\n".join(code).splitlines():
        line = line.split("#")[0]
        for call in re.findall(r"(?:^|[\s|/])berth (?!-n ?$)((?:-n \S+ |--\S+ )?)([a-z]+)\b([^|;&]*)", line):
            command, rest = call[1], call[2]
            if command not in commands:
                bad.append(f"{name}: no command 'berth {command}': {line.strip()}")
                continue
            uses += 1
            for option in re.findall(r"(?<!\S)--([a-z-]+)", rest):
                if option not in commands[command] | everywhere and command != "replay":
                    bad.append(f"{name}: 'berth {command}' has no --{option}")
        for call in re.findall(r"(?:^|[\s/])berthd( --[^&;|]*)", line):
            uses += 1
            for option in re.findall(r" --([a-z-]+)", call):
                if option not in settings and option not in ("config", "print-config", "help", "version"):
                    bad.append(f"{name}: berthd has no --{option}")
if uses < 30:
    bad.append(f"only {uses} uses of the programs were found")

# Links inside the documents.
for name, text in texts.items():
    for target in re.findall(r"\]\(([^)\s]+)\)", text):
        file, _, anchor = target.partition("#")
        to = (root / name).parent / file if file else root / name
        heads = [re.sub(r"[^a-z0-9 -]", "", h.lower()).replace(" ", "-") for h in re.findall(r"^#+ (.*)$", to.read_text(), re.M)] \
            if to.exists() and to.suffix == ".md" else []
        if not to.exists() or (anchor and anchor not in heads):
            bad.append(f"{name}: the link {target} leads nowhere")
print("\n".join(bad))
sys.exit(len(bad) > 0)
PYTHON
finish
