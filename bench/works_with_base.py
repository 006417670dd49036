"""The working folder of bench/works_with.py: small base models that can talk a little, tokenizer folders, stand-ins for data sets.

A base is the shipped model, whose reserved tokens become the turn marks of Qwen's chat and whose attention and context are widened,
fine-tuned by `lockstep train sft` on made-up conversations (works_with_lessons.py).
"""

import json
import random
import shutil
import subprocess
from dataclasses import dataclass
from pathlib import Path

import works_with_lessons as lessons

ROOT = Path(__file__).resolve().parents[1]
SHIPPED = ROOT / "models/countdown-glm"
BASE = "countdown-chat"
# Names that recipes insist on; the server takes them as aliases, and a folder of that name gives the client its tokenizer.
ALIASES = ["Qwen/Qwen3-8B", "Qwen/Qwen3.5-4B", "Qwen/Qwen3.5-9B", "Qwen/Qwen3.5-9B-Base", "Qwen/Qwen3.6-35B-A3B"]
MARKS = ["<|im_start|>", "<|im_end|>", "<think>", "</think>", "<|endoftext|>"]
END = "<|im_end|>"


@dataclass(frozen=True)
class Base:
    name: str
    taught: str  # one sentence for the page
    lessons: dict  # of works_with_lessons, and how often each is drawn
    steps: int
    batch: int
    examples: int
    keys: int = 32  # that a query attends to; the shipped model has 4
    every_turn: bool = False  # of a conversation is trained, not its last answer alone


BASES = [
    Base(BASE, "the formats of all recipes, each with few examples; its sums are right three times in five",
         {lessons.arithmetic: 64, lessons.guessing: 18, lessons.introduction: 8, lessons.large_sum: 6, lessons.grading: 4}, 500, 32, 12000),
    Base("countdown-sums", "lists of right sums of two numbers to 100, and one conversation in three whose sums are wrong a third of the time",
         {lessons.list_of_sums: 2, lessons.rows_of_sums: 1}, 1500, 16, 24000, 2048, True),
    Base("countdown-guesses", "games of guessing a number, in which three turns in seven break the format and a third of the guesses forget what was answered",
         {lessons.game: 1}, 240, 8, 1920, 2048, True),
]  # fmt: skip


def write_model_folder(folder, keys=32):
    """The shipped model with MARKS in place of reserved tokens, `keys` a query instead of 4, and a context of 2,048. Its weights are unchanged."""
    folder.mkdir(parents=True)
    shutil.copy(SHIPPED / "model.safetensors", folder)
    tokenizer = json.loads((SHIPPED / "tokenizer.json").read_text())
    ids = {}
    for token in tokenizer["added_tokens"]:
        if token["content"].startswith("<|reserved_") and len(ids) < len(MARKS):
            mark = MARKS[len(ids)]
            vocabulary = tokenizer["model"]["vocab"]
            if token["content"] in vocabulary:
                vocabulary[mark] = vocabulary.pop(token["content"])
            token["content"] = mark
            token["special"] = mark not in ("<think>", "</think>")  # as Qwen has it: they are part of what is said
            ids[mark] = token["id"]
    (folder / "tokenizer.json").write_text(json.dumps(tokenizer, ensure_ascii=False))
    settings = json.loads((SHIPPED / "tokenizer_config.json").read_text())
    settings.pop("bos_token")
    settings.update(eos_token=END, pad_token="<|endoftext|>", model_max_length=2048)
    (folder / "tokenizer_config.json").write_text(json.dumps(settings, indent=1))
    for name in ("config.json", "generation_config.json"):
        config = json.loads((SHIPPED / name).read_text())
        config.pop("bos_token_id", None)
        config.update(eos_token_id=ids[END], pad_token_id=ids["<|endoftext|>"])
        if name == "config.json":
            config.update(index_topk=keys, max_position_embeddings=2048)
        (folder / name).write_text(json.dumps(config, indent=1))


def write_examples(path, folder, base):
    """`base`'s conversations as token ids and weights, by the cookbook's own renderers."""
    from tinker_cookbook import renderers
    from tinker_cookbook.renderers import TrainOnWhat
    from tinker_cookbook.tokenizer_utils import get_tokenizer

    rng, tokenizer, known = random.Random(1), get_tokenizer(str(folder)), {}
    what = TrainOnWhat.CUSTOMIZED if base.every_turn else TrainOnWhat.LAST_ASSISTANT_MESSAGE
    with path.open("w") as out:
        for _ in range(base.examples):
            renderer, turns = rng.choices(tuple(base.lessons), tuple(base.lessons.values()))[0](rng)
            if renderer == lessons.PLAIN:
                parts = [(tokenizer.encode(words, add_special_tokens=False), float(role == lessons.SAID)) for role, words in turns]
                tokens, weights = [t for ids, _ in parts for t in ids], [w for ids, w in parts for _ in ids]
                print(json.dumps({"tokens": tokens, "weights": weights[1:]}), file=out)
                continue
            known.setdefault(renderer, renderers.get_renderer(renderer, tokenizer))
            messages = [{"role": role, "content": content, **({"trainable": role in ("assistant", "player")} if base.every_turn else {})} for role, content in turns]
            prompt, weights = known[renderer].build_supervised_example(messages, what)
            print(json.dumps({"tokens": prompt.to_ints(), "weights": weights.tolist()[1:]}), file=out)


def make_base(work, base, binary, threads):
    """work/NAME, made unless it is there."""
    if (work / base.name / "model.safetensors").is_file():
        return work / base.name
    start, examples, runs = work / f"{base.name}-start", work / f"{base.name}.jsonl", work / "sft"
    for made in (start, work / base.name, runs / base.name):
        shutil.rmtree(made, ignore_errors=True)
    write_model_folder(start, base.keys)
    write_examples(examples, start, base)
    subprocess.run([binary, "train", "sft", "--model", str(start), "--data", str(examples), "--runs", str(runs), "--name", base.name, "--steps", str(base.steps),
                    "--batch", str(base.batch), "--learning-rate", "2e-3", "--schedule", "linear", "--warmup", "30", "--max-norm", "1", "--beta2", "0.98",
                    "--eval-share", "0", "--no-page", "--quiet", "--threads", str(threads), "--export-to", str(work / base.name)], check=True)  # fmt: skip
    return work / base.name


def link_tokenizers(work, base, names=ALIASES):
    """A folder a model name, with the base's tokenizer alone."""
    for name in names:
        (work / name).mkdir(parents=True, exist_ok=True)
        for file in ("tokenizer.json", "tokenizer_config.json"):
            shutil.copy(base / file, work / name)


def write_rows(path, rows):
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text("".join(json.dumps(row) + "\n" for row in rows))


def write_stand_ins(work):
    """Made-up rows in folders named like the data sets; what is in them is sums and small talk, no published data."""
    rng = random.Random(2)

    def pair():
        return rng.randint(0, 100), rng.randint(0, 100)

    for split, count in (("train", 512), ("test", 32)):
        sums = [pair() for _ in range(count)]
        chats = [{"messages": [{"role": "user", "content": f"What is {x} + {y}?"}, {"role": "assistant", "content": str(x + y)}]} for x, y in sums]
        write_rows(work / f"HuggingFaceH4/no_robots/{split}.jsonl", chats)
        write_rows(work / f"allenai/tulu-3-sft-mixture/{split}.jsonl", chats)
        write_rows(work / f"zwhe99/DeepMath-103K/{split}.jsonl", [{"question": f"What is {x} + {y}?", "final_answer": str(x + y)} for x, y in sums])
        write_rows(work / f"openai/gsm8k/{split}.jsonl", [{"question": f"What is {x} + {y}?", "answer": f"{x} + {y} = {x + y}\n#### {x + y}"} for x, y in sums])
        write_rows(work / f"Anthropic/hh-rlhf/{split}.jsonl",
                   [{"chosen": f"\n\nHuman: What is {x} + {y}?\n\nAssistant: {x + y}", "rejected": f"\n\nHuman: What is {x} + {y}?\n\nAssistant: I do not know."} for x, y in sums])  # fmt: skip
    (work / "openai/gsm8k/README.md").write_text(
        "---\nconfigs:\n- config_name: main\n  data_files:\n  - split: train\n    path: train.jsonl\n  - split: test\n    path: test.jsonl\n---\n")
    write_rows(work / "sums.jsonl", [{"messages": [turn for x, y in [(4, 5)] + [pair() for _ in range(3)]
                                                   for turn in ({"role": "user", "content": f"What is {x} + {y}?"}, {"role": "assistant", "content": str(x + y)})]}
                                     for _ in range(128 * 260)])  # fmt: skip
    distilled = [{"messages": [{"role": "user", "content": text}, {"role": "assistant", "content": language}]}
                 for text, language in [("Good morning", "en"), ("Guten Morgen", "de"), ("Bonjour", "fr"), ("Buenos dias", "es")] * 16]  # fmt: skip
    write_rows(work / "languages.jsonl", distilled)
    (work / "tinker_cookbook/example_data").mkdir(parents=True, exist_ok=True)  # where rubric.generate_data writes
