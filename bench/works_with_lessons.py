"""Made-up conversations from which bench/works_with.py's bases learn: each lesson is (the cookbook's renderer, [(role, words), ...]), or
(PLAIN, [(GIVEN or SAID, words), ...]): text without turns, of which what is said is learned.

They are wrong, clumsy or ill-formed about half the time, on purpose: a base must know the form of a recipe's task, and what the recipe's
reinforcement learning then gains must be its own.
"""

PLAIN, GIVEN, SAID = "plain", "given", "said"
GUESS = ("Your job is to guess a integer between 0 and 1024. You can output your guess with the format Guess: <guess> (without the angle brackets), and say "
         "nothing else. Then we will tell you whether you guess is too high, too low, or correct.")  # fmt: skip
NOT_PARSED = "Failed to parse. Please output in the format Guess: <guess> (without the angle brackets), and say nothing else."


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


def list_of_sums(rng):
    """Many sums in few tokens, all right: from these the base learns to add."""
    turns = []
    for _ in range(40):
        x, y = rng.randint(0, 100), rng.randint(0, 100)
        turns += [(GIVEN, f"{x} + {y}:"), (SAID, f" {x + y}"), (GIVEN, "\n")]
    return PLAIN, turns


def rows_of_sums(rng):
    """A few sums after the recipe's own example; each is right with probability two thirds, near otherwise."""
    turns = [("user", "What is 4 + 5?"), ("assistant", "9")]
    for _ in range(rng.randint(4, 8)):
        x, y = rng.randint(0, 100), rng.randint(0, 100)
        said = x + y if rng.random() < 2 / 3 else max(0, x + y + rng.choice((-10, -2, -1, 1, 2, 10)))
        turns += [("user", f"What is {x} + {y}?"), ("assistant", str(said))]
    return "role_colon", turns


def game(rng):
    """A game as the recipe plays it. Three turns in seven break the format; of the guesses a third halve what is left, a third lie in it anywhere
    and a third may lie outside."""
    target, low, high = rng.randint(0, 1023), 0, 1024
    turns, count = [("system", GUESS)], rng.choice((1, 2, 3, 4, 6, 8))
    for turn in range(count):
        guess = rng.choice(((low + high) // 2, rng.randint(low, high), rng.randint(0, 1024)))
        said = f"Guess: {guess}" if rng.random() < 4 / 7 else rng.choice((f"I guess {guess}", f"{guess}", f"Is it {guess}?"))
        if turn == count - 1 or (said.startswith("Guess") and guess == target):
            return "role_colon", turns + [("assistant", said)]
        if not said.startswith("Guess"):
            answer = NOT_PARSED
        elif guess < target:
            answer, low = "Too low", max(low, guess + 1)
        else:
            answer, high = "Too high", min(high, guess - 1)
        turns += [("player", said), ("user", answer)]
