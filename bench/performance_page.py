"""The page docs/performance.md as text: sections, and in a section one block a kind of machine, so that what was measured with AVX-512
stands beside what was measured without. A machine's kind is its processor and the instruction set used, as the block's line `Machine:` says.

    page = add_block(page, "Linear layers, fp32", block_lines, ["Linear layers, fp32", "A GRPO step", ...])
    page = without_outlived(without_unnamed(page))

Only the block of the same kind is replaced, and every other line stays as it is, except for blocks that cannot be measured again: those without a commit
are removed, and those whose commit this repository does not have, where another block of the same instruction set stands. The first block of a section has no heading; each other one begins with `### On ` and its kind.
"""

import re

HEADING = re.compile(r"^### On .*\n+", re.M)
NAMED = re.compile(r"^Measured at commit ", re.M)
LOST = re.compile(r"^Measured at commit .* is of an earlier history, which this repository does not have", re.M)  # tools/named_commits.py


def sections_of(page):
    """{title: text} of the page's sections, and the text before the first title."""
    head, *parts = re.split(r"^## ", page, flags=re.M)
    found = {}
    for part in parts:
        title, _, text = part.partition("\n")
        found[title] = text.strip("\n")
    return head.rstrip("\n"), found


def instruction_set(block):
    """'avx512' of a block's line `Machine: ...`; '' where it has none."""
    used = re.search(r"^Machine: .*Instruction set used: (\w+)", block, re.M)
    return used[1] if used else ""


def machine_kind(block):
    """'AMD EPYC (family 25, model 17), avx512' of a block's line `Machine: ...`; '' where it has none."""
    machine, used = re.search(r"^Machine: (.*?), \d+ processors?\b.*$", block, re.M), instruction_set(block)
    return f"{machine[1]}, {used}" if machine and used else ""


def blocks_of(section):
    return [block.strip("\n") for block in re.split(r"^(?=### On )", section, flags=re.M) if block.strip()]


def page_of(head, sections):
    return head + "\n\n" + "\n\n".join(f"## {title}\n\n{text}" for title, text in sections.items()) + "\n"


def section_of(blocks):
    """Blocks as a section's text: the first one without a heading."""
    return "\n\n".join([HEADING.sub("", block) if i == 0 else block for i, block in enumerate(blocks)])


def with_blocks(page, chosen):
    """The page with chosen(blocks) of each section's blocks, and without a section that then has none."""
    head, sections = sections_of(page)
    kept = {title: chosen(blocks_of(text)) for title, text in sections.items()}
    return page_of(head, {title: section_of(blocks) for title, blocks in kept.items() if blocks})


def without_unnamed(page):
    """The page without the blocks that do not name the commit that was measured, and without a section that has no other."""
    return with_blocks(page, lambda blocks: [block for block in blocks if NAMED.search(block)])


def without_outlived(page):
    """The page without the blocks of a commit that this repository does not have, in sections with a block of the same instruction set whose commit it has."""

    def stands(block, blocks):
        return not LOST.search(block) or instruction_set(block) not in {instruction_set(other) for other in blocks if not LOST.search(other)}

    return with_blocks(page, lambda blocks: [block for block in blocks if stands(block, blocks)])


def add_block(page, title, lines, titles):
    """The page with the block `lines` of section `title`, in the order of `titles`."""
    head, sections = sections_of(page)
    new = "\n".join(lines).strip("\n")
    kind = machine_kind(new)
    if not kind:
        raise ValueError(f"a block of '{title}' does not say its machine")
    blocks, done = [], False
    for block in blocks_of(sections.get(title, "")):
        if machine_kind(block) == kind:
            heading = HEADING.match(block)
            block, done = (heading[0].rstrip("\n") + "\n\n" if heading else "") + new, True
        blocks.append(block)
    if not done:
        blocks.append(f"### On {kind}\n\n{new}" if blocks else new)
    sections[title] = "\n\n".join(blocks)
    order = [*(t for t in titles if t in sections), *(t for t in sections if t not in titles)]
    return page_of(head, {t: sections[t] for t in order})
