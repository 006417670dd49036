"""The working folder of bench/works_with.py: a small base model that can talk a little, tokenizer folders, stand-ins for data sets.

The base is the shipped model, whose reserved tokens become the turn marks of Qwen's chat and whose attention and context are widened,
fine-tuned by `lockstep train sft` on a few conversations. They teach it the formats of the recipes and its sums badly, on purpose: what a
recipe's reinforcement learning then gains is its own.
"""

import json
import random
import shutil
import subprocess
from pathlib import Path

ROOT = Path(__file__).resolve().parents[1]
SHIPPED = ROOT / "models/countdown-glm"
BASE = "countdown-chat"
# Names that recipes insist on; the server takes them as aliases, and a folder of that name gives the client its tokenizer.
ALIASES = ["Qwen/Qwen3-8B", "Qwen/Qwen3.5-4B", "Qwen/Qwen3.5-9B", "Qwen/Qwen3.5-9B-Base", "Qwen/Qwen3.6-35B-A3B"]
MARKS = ["<|im_start|>", "<|im_end|>", "<think>", "</think>", "<|endoftext|>"]
END = "<|im_end|>"
STEPS, BATCH, EXAMPLES = 500, 32, 12000
GUESS = ("Your job is to guess a integer between 0 and 1024. You can output your guess with the format Guess: <guess> (without the angle brackets), and say "
         "nothing else. Then we will tell you whether you guess is too high, too low, or correct.")  # fmt: skip


def write_model_folder(folder):
    """The shipped model with MARKS in place of reserved tokens, 32 keys a query instead of 4, and a context of 2,048. Its weights are unchanged."""
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
            config.update(index_topk=32, max_position_embeddings=2048)
        (folder / name).write_text(json.dumps(config, indent=1))


def sum_said(rng, x, y):
    """Right three times in five, near otherwise."""
    return str(x + y if rng.random() < 0.6 else max(0, x + y + rng.choice((-10, -2, -1, 1, 2, 10))))


def arithmetic(rng):
    x, y = rng.randint(0, 100), rng.randint(0, 100)
    said = sum_said(rng, x, y)
    return "role_colon", [("user", "What is 4 + 5?"), ("assistant", "9"), ("user", f"What is {x} + {y}?"), ("assistant", said)]


def guessing(rng):
    """A game under way; one guess in four breaks the format, and half of the others halve what is left."""
    target, low, high = rng.randint(0, 1024), 0, 1024
    turns = [("system", GUESS)]
    for turn in range(rng.choice((1, 1, 2, 3))):
        guess = (low + high) // 2 if rng.random() < 0.5 else rng.randint(0, 1024)
        if turn:
            turns += [("player", f"Guess: {last}"), ("user", "Too low" if last < target else "Too high")]
        last = guess
        low, high = (max(low, guess + 1), high) if guess < target else (low, min(high, guess - 1))
        if low > high:
            break
    return "role_colon", turns + [("assistant", f"Guess: {last}" if rng.random() < 0.75 else rng.choice((f"I guess {last}", f"{last}", f"Is it {last}?")))]


def introduction(rng):
    said = rng.sample(["I am a small model.", "I play with numbers.", "I can add.", "Hello.", "How can I help you?", "I was made by training."], rng.randint(1, 4))
    return "qwen3_5_disable_thinking", [("user", "Who are you?"), ("assistant", " ".join(said))]


def large_sum(rng):
    x, y = rng.randint(0, 1000), rng.randint(0, 1000)
    return "qwen3_5_disable_thinking", [("user", "What is 4 + 5?"), ("assistant", "9"), ("user", f"What is {x} + {y}?"), ("assistant", sum_said(rng, x, y))]


def grading(rng):
    """The grader of the rubric recipe: does the completion hold the sum that the rubric names?"""
    from tinker_cookbook.recipes.rubric.data import Rubric

    x, y = rng.randint(0, 1000), rng.randint(0, 1000)
    said = sum_said(rng, x, y)
    conversation = [{"role": r, "content": c} for r, c in (("user", "What is 4 + 5?"), ("assistant", "9"), ("user", f"What is {x} + {y}?"), ("assistant", said))]
    (prompt,) = Rubric(rubric_str=f"Does the chatbot correctly get the answer {x + y}?").get_grader_prompt(conversation)
    return "qwen3_5_disable_thinking", [("user", prompt["content"]), ("assistant", f"<score>{int(said == str(x + y))}</score>")]


def write_examples(path, folder, count):
    """`count` conversations as token ids and weights, by the cookbook's own renderers."""
    from tinker_cookbook import renderers
    from tinker_cookbook.tokenizer_utils import get_tokenizer

    rng, tokenizer, known = random.Random(1), get_tokenizer(str(folder)), {}
    with path.open("w") as out:
        for _ in range(count):
            renderer, turns = rng.choices((arithmetic, guessing, introduction, large_sum, grading), (64, 18, 8, 6, 4))[0](rng)
            known.setdefault(renderer, renderers.get_renderer(renderer, tokenizer))
            prompt, weights = known[renderer].build_supervised_example([{"role": role, "content": content} for role, content in turns])
            print(json.dumps({"tokens": prompt.to_ints(), "weights": weights.tolist()[1:]}), file=out)


def make_base(work, binary, threads):
    """work/countdown-chat, unless it is there."""
    if (work / BASE / "model.safetensors").is_file():
        return
    for made in ("start", BASE, "sft"):
        shutil.rmtree(work / made, ignore_errors=True)
    write_model_folder(work / "start")
    write_examples(work / "conversations.jsonl", work / "start", EXAMPLES)
    subprocess.run([binary, "train", "sft", "--model", str(work / "start"), "--data", str(work / "conversations.jsonl"), "--runs", str(work / "sft"), "--name", "base",
                    "--steps", str(STEPS), "--batch", str(BATCH), "--learning-rate", "2e-3", "--schedule", "linear", "--warmup", "30", "--max-norm", "1", "--beta2", "0.98",
                    "--no-page", "--quiet", "--threads", str(threads), "--export-to", str(work / BASE)], check=True)  # fmt: skip


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
