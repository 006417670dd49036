"""The recipes of tinker-cookbook that bench/works_with.py runs: their commands, and what is looked at in their metrics.

In an argument, {state:NAME} and {sampler:NAME} are the last checkpoints that recipe NAME left, of its training and of its sampler.
"""

from dataclasses import dataclass, field

RL = "env/all/reward/total"


@dataclass
class Recipe:
    name: str
    module: str  # below tinker_cookbook.recipes
    arguments: str
    metric: str = ""  # of metrics.jsonl, what is to move
    better: str = ""  # "up" or "down": then the mean of the last fifth must be better than that of the first; empty: nothing is asked of it
    seconds: int = 1800
    needs: list = field(default_factory=list)  # recipes before it
    same_kl: bool = False  # sampler and trainer must agree exactly in every step (optim/kl_sample_train_v2 is 0): whoever trains on samples of the newest weights
    always: float | None = None  # what the metric must be in every step
    same_as: str = ""  # a recipe whose metric must have the same values at the steps that both logged
    refused: str = ""  # words of the refusal that is expected
    logs: bool = True  # writes metrics.jsonl
    resumes: str = ""  # a recipe in whose log folder it goes on
    kill_at: int = 0  # it is killed as soon as it has logged this step
    curve: str = ""  # title of its panel
    note: str = ""
    base: str = "countdown-chat"  # a name of works_with_base.BASES, or smollm2

    def asked(self):
        """What is checked of the recipe's results, in words; empty: only that it ends as it should, which shows no more than that it ran."""
        return ["a refusal"] * bool(self.refused) + ["a kill"] * bool(self.kill_at) + [f"{self.metric} goes {self.better}"] * bool(self.better) + ["no KL"] * self.same_kl + [
            f"{self.metric} is {self.always}"] * (self.always is not None) + [f"the numbers of {self.same_as}"] * bool(self.same_as)  # fmt: skip


def recipes():
    colon = "model_name=countdown-chat renderer_name=role_colon"
    none = "eval_every=0 save_every=0"
    chat = f"{colon} dataset={{package}}/example_data/conversations.jsonl batch_size=16 max_length=512 lr_schedule=constant learning_rate=1e-3 eval_every=0 save_every=4"
    loop = "batch_size=16 save_every=3 max_length=512 learning_rate=1e-3"
    arithmetic = f"{colon} env=arithmetic group_size=8 groups_per_batch=32 max_tokens=12"
    return [
        Recipe("chat_sl, sums", "chat_sl.train", f"{colon} dataset=sums.jsonl batch_size=128 max_length=512 lr_schedule=linear learning_rate=3e-3 train_on_what=all_assistant_messages "
               "eval_every=0 save_every=10 max_steps=50", "train_mean_nll", "down", curve="chat_sl, sums: loss", note="made-up conversations, all right"),
        Recipe("arithmetic", "math_rl.train", "model_name=countdown-sums renderer_name=role_colon env=arithmetic group_size=16 groups_per_batch=16 max_tokens=12 "
               "loss_fn=importance_sampling learning_rate=1e-4 max_steps=80 eval_every=0 save_every=80", RL, "up", base="countdown-sums", same_kl=True,
               curve="math_rl, arithmetic: reward", note="sums of two numbers to 100; an adapter of rank 32"),
        Recipe("arithmetic, SmolLM2", "math_rl.train", "model_name=smollm2 renderer_name=role_colon env=arithmetic group_size=8 groups_per_batch=8 max_tokens=8 "
               f"loss_fn=importance_sampling learning_rate=1e-4 max_steps=40 {none}", RL, better="up", base="smollm2", same_kl=True, curve="math_rl, arithmetic, SmolLM2-135M: reward",
               note="SmolLM2-135M-Instruct itself, by an adapter of rank 32"),
        Recipe("arithmetic, the default loss", "math_rl.train", f"{arithmetic} max_steps=1 {none}", refused="importance_sampling",
               note="`stable_reinforce`, whose objective is not public: refused in a sentence that names others"),
        Recipe("arithmetic, ppo, off policy", "math_rl.train", f"{arithmetic} loss_fn=ppo learning_rate=1e-3 num_substeps=2 max_steps_off_policy=1 max_steps=4 {none}", RL,
               note="asynchronous; two optimizer steps a batch"),
        Recipe("guess_number", "multiplayer_rl.guess_number.train", "model_name=countdown-guesses renderer_name=role_colon group_size=4 batch_size=2 max_tokens=20 "
               f"learning_rate=1e-3 max_steps=30 {none}", RL, "up", base="countdown-guesses", same_kl=True, curve="guess_number: reward",
               note="up to 10 turns an episode; -1 for each that breaks the format; an adapter of rank 32"),
        Recipe("chat_sl", "chat_sl.train", f"{chat} max_steps=8", "train_mean_nll", "down", curve="chat_sl: loss", note="the cookbook's own example conversations"),
        Recipe("chat_sl, killed", "chat_sl.train", f"{chat} max_steps=8", "train_mean_nll", kill_at=5,
               note="SIGKILL after step 5; its last checkpoint is that of step 4"),
        Recipe("chat_sl, resumed", "chat_sl.train", f"{chat} max_steps=8 behavior_if_log_dir_exists=resume", "train_mean_nll", "down", needs=["chat_sl, killed"],
               resumes="chat_sl, killed", note="goes on from its checkpoint, optimizer included; this recipe submits a step ahead of what it saves, so its checkpoint 4 has seen steps 4 and 5, "
               "and they are done twice"),
        Recipe("prompt_distillation", "prompt_distillation.train", "file_path=languages.jsonl model_name=Qwen/Qwen3-8B renderer_name=qwen3 batch_size=8 num_epochs=3 "
               "learning_rate=1e-3 eval_every=0", "train_mean_nll", "down", curve="prompt_distillation: loss", note="stand-in conversations"),
        Recipe("preference.shorter", "preference.shorter.train", "model_name=Qwen/Qwen3.5-4B batch_size=8 group_size=8 max_tokens=64 learning_rate=1e-3 max_steps=12 eval_every=0",
               "env/all/ac_tokens_per_turn", "down", same_kl=True, curve="preference.shorter: tokens an answer", note="the shorter of two answers wins"),
        Recipe("rubric.generate_data", "rubric.generate_data", "", logs=False),
        Recipe("rubric", "rubric.train", "model_name=Qwen/Qwen3.5-9B grader_llm_name=Qwen/Qwen3.6-35B-A3B loss_fn=importance_sampling train_group_size=8 groups_per_batch=8 "
               f"max_tokens=8 learning_rate=1e-3 max_steps=6 {none}", RL, needs=["rubric.generate_data"], same_kl=True, curve="rubric: reward",
               note="the grader is the same small model: what it says is no judgement"),
        Recipe("preference.dpo", "preference.dpo.train", "model_name=Qwen/Qwen3.5-9B-Base dataset=hhh batch_size=16 max_length=512 learning_rate=3e-4 max_steps=12",
               "dpo_loss", "down", curve="preference.dpo: loss", note="stand-in of Anthropic/hh-rlhf; compute_logprobs and forward_backward_custom"),
        Recipe("on_policy_distillation", "distillation.on_policy_distillation", "model_name=countdown-sums renderer_name=role_colon teacher_model=countdown-sums "
               f"teacher_checkpoint={{sampler:arithmetic}} groups_per_batch=16 group_size=16 max_tokens=12 learning_rate=1e-4 max_steps=32 {none}", "teacher_kl", "down",
               needs=["arithmetic"], base="countdown-sums", same_kl=True, curve="on_policy_distillation: KL to the teacher",
               note="the teacher is a checkpoint of an arithmetic run; stand-in of DeepMath-103K; at a rate of 3e-4 the divergence rose again between steps 23 and 28, so it is 1e-4"),
        Recipe("on_policy_multi_teacher", "distillation.on_policy_multi_teacher", "model_name=Qwen/Qwen3-8B deepmath_teacher_model=Qwen/Qwen3-8B tulu3_teacher_model=Qwen/Qwen3-8B "
               f"deepmath_groups_per_batch=2 tulu3_groups_per_batch=2 group_size=2 max_tokens=8 max_steps=2 {none}", "teacher_kl", same_kl=True, always=0,
               note="two teachers, each the base itself: there is nothing to learn, and no KL to them"),
        Recipe("math_rl gsm8k", "math_rl.train", f"model_name=Qwen/Qwen3-8B env=gsm8k loss_fn=ppo group_size=4 groups_per_batch=4 max_tokens=16 max_steps=2 {none}", RL, same_kl=True,
               note="stand-in of gsm8k"),
        Recipe("sl_loop, killed", "sl_loop", f"{loop} max_steps=8", "train_mean_nll", kill_at=5, note="SIGKILL after step 5; its last checkpoint is that of step 3; stand-in of no_robots"),
        Recipe("sl_loop, resumed", "sl_loop", f"{loop} max_steps=8", "train_mean_nll", "down", needs=["sl_loop, killed"], resumes="sl_loop, killed", same_as="sl_loop, killed",
               note="goes on from step 3, optimizer included: the steps that it repeats have the bits of the killed run"),
        Recipe("rl_loop", "rl_loop", "batch_size=4 group_size=4 max_tokens=8 max_steps=2 loss_fn=importance_sampling", "reward/total", note="stand-in of gsm8k"),
        Recipe("rlhf_pipeline", "preference.rlhf.rlhf_pipeline", "base_model=Qwen/Qwen3.5-9B-Base batch_size=4 max_length=512 rl_max_tokens=8 rl_group_size=2 max_steps=1 save_every=1",
               logs=False, note="three stages: fine-tuning, a reward model, reinforcement learning"),
        Recipe("twenty_questions", "multiplayer_rl.twenty_questions.train", f"model_name=Qwen/Qwen3.5-4B group_size=2 batch_size=2 max_steps=1 {none}", RL, same_kl=True),
    ]  # fmt: skip
