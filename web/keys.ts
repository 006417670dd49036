// What the keys of metrics.jsonl mean, and in which order a person wants to see them. Unknown keys go to "Other" under their own name.

// unit: what an axis of it counts; empty where it is not known.
export interface Meaning { title: string; note: string; unit: string }
export interface Group { title: string; keys: string[] }

const meanings: Record<string, Meaning> = {
  reward: { title: "Reward", note: "mean over the step's rollouts", unit: "mean" },
  pass_at_1: { title: "pass@1", note: "share of right rollouts", unit: "share" },
  pass_at_group: { title: "pass@group", note: "share of problems with a right rollout", unit: "share" },
  zero_spread: { title: "Groups without spread", note: "share of groups whose rewards are all equal: they teach nothing", unit: "share" },
  ended: { title: "Ended", note: "share of rollouts that ended by themselves", unit: "share" },
  loss: { title: "Loss", note: "", unit: "nats" },
  eval_loss: { title: "Held-out loss", note: "of sequences that are not learned", unit: "nats" },
  index_loss: { title: "Indexer loss", note: "KL of the indexers per row", unit: "nats" },
  mtp_loss: { title: "Drafts' loss", note: "of the layer of multi-token prediction, mean over its depths", unit: "nats" },
  mtp_variation: { title: "Drafts' loss of overlap", note: "of the layer of multi-token prediction, where --mtp-loss is tv or both", unit: "" },
  mtp_index_loss: { title: "Drafts' indexer loss", note: "KL of that layer's indexer per row", unit: "nats" },
  mtp_gradient_norm: { title: "Drafts' gradient norm", note: "of that layer, before clipping", unit: "norm" },
  mtp_learning_rate: { title: "Drafts' learning rate", note: "of that layer", unit: "rate" },
  accuracy: { title: "Accuracy", note: "share of pairs whose chosen answer has the higher reward", unit: "share" },
  margin: { title: "Margin", note: "reward of the chosen answer minus the rejected one's", unit: "reward" },
  eval_accuracy: { title: "Held-out accuracy", note: "of pairs that are not learned", unit: "share" },
  eval_margin: { title: "Held-out margin", note: "of pairs that are not learned", unit: "reward" },
  chosen_reward: { title: "Chosen reward", note: "beta times the log-ratio to the reference, or the log-probability", unit: "reward" },
  rejected_reward: { title: "Rejected reward", note: "beta times the log-ratio to the reference, or the log-probability", unit: "reward" },
  chosen_logprob: { title: "Chosen log-probability", note: "of a whole answer", unit: "nats" },
  rejected_logprob: { title: "Rejected log-probability", note: "of a whole answer", unit: "nats" },
  shift: { title: "KTO's z", note: "what answers are compared with", unit: "nats" },
  entropy: { title: "Entropy", note: "of the policy, nats a token", unit: "nats" },
  different_bits: { title: "Different bits", note: "log-probabilities of the trainer that are not the sampler's, bit for bit", unit: "tokens" },
  k1: { title: "KL k1", note: "mean of −log ratio, trainer against sampler", unit: "nats" },
  k2: { title: "KL k2", note: "mean of half the squared log ratio", unit: "nats" },
  k3: { title: "KL k3", note: "mean of ratio − 1 − log ratio", unit: "nats" },
  clipped: { title: "Clipped", note: "share of tokens whose ratio is outside the clip range", unit: "share" },
  truncated: { title: "Cut off at the limit", note: "tokens whose weight, the trainer's probability over the sampler's, was above the limit (--importance-cap)", unit: "tokens" },
  largest_log_ratio: { title: "Largest log ratio", note: "of all tokens of the step", unit: "nats" },
  reference_k1: { title: "KL k1 to the reference", note: "mean of −log ratio, of the weights that sampled", unit: "nats" },
  reference_k3: { title: "KL k3 to the reference", note: "mean of ratio − 1 − log ratio, of the weights that sampled", unit: "nats" },
  policy_k3: { title: "KL k3 within the step", note: "of the mini-batches after the first update, against the weights that sampled", unit: "nats" },
  policy_clipped: { title: "Clipped within the step", note: "share of the same tokens whose ratio is outside the clip range", unit: "share" },
  updates: { title: "Updates", note: "optimizer steps on the step's rollouts", unit: "updates" },
  mini_batches_skipped: { title: "Mini-batches skipped", note: "after the KL to stop at (--stop-kl) was reached", unit: "mini-batches" },
  proximal_forwards: { title: "Proximal forwards", note: "rollouts whose proximal log-probabilities were computed, and not the sampler's own", unit: "rollouts" },
  groups_redrawn: { title: "Groups drawn again", note: "their rewards were all equal", unit: "groups" },
  groups_dropped: { title: "Groups dropped", note: "their rewards were all equal after the last draw", unit: "groups" },
  unanswered: { title: "Unanswered", note: "completions about which a teacher behind an address said nothing: left out, not learned as 0", unit: "completions" },
  unjudged_tokens: { title: "Unjudged tokens", note: "of which no teacher behind an address could say anything", unit: "tokens" },
  completions: { title: "Completions", note: "of the step", unit: "completions" },
  gradient_norm: { title: "Gradient norm", note: "before clipping", unit: "norm" },
  value_loss: { title: "Value loss", note: "of the critic: half the square of value minus return", unit: "reward²" },
  explained_variance: { title: "Explained variance", note: "share of the returns' variance that the values knew before they learned from the step", unit: "share" },
  mean_value: { title: "Value", note: "mean over trained tokens", unit: "reward" },
  mean_return: { title: "Return", note: "mean over trained tokens", unit: "reward" },
  values_held: { title: "Values held", note: "share of values whose move was held by --value-clip", unit: "share" },
  critic_gradient_norm: { title: "Critic's gradient norm", note: "before clipping", unit: "norm" },
  critic_seconds: { title: "Critic", note: "seconds of the step", unit: "s" },
  advantage_min: { title: "Least advantage", note: "of the trained tokens", unit: "advantage" },
  advantage_p10: { title: "Advantage, a tenth below", note: "of the trained tokens", unit: "advantage" },
  advantage_median: { title: "Median advantage", note: "of the trained tokens", unit: "advantage" },
  advantage_p90: { title: "Advantage, a tenth above", note: "of the trained tokens", unit: "advantage" },
  advantage_max: { title: "Largest advantage", note: "of the trained tokens", unit: "advantage" },
  turns: { title: "Turns", note: "of a rollout, mean", unit: "turns" },
  chains: { title: "Context windows", note: "of a rollout, mean; each but the last ends with a summary", unit: "windows" },
  learning_rate: { title: "Learning rate", note: "", unit: "rate" },
  tokens_per_second: { title: "Tokens/s", note: "sampled and trained", unit: "tokens/s" },
  rollout_seconds: { title: "Sampling", note: "seconds of the step", unit: "s" },
  train_seconds: { title: "Training", note: "seconds of the step", unit: "s" },
  teacher_seconds: { title: "Teachers", note: "seconds of the step", unit: "s" },
  seconds: { title: "Step", note: "its seconds", unit: "s" },
  tokens: { title: "Tokens", note: "of the step", unit: "tokens" },
  trained_tokens: { title: "Trained tokens", note: "of the step", unit: "tokens" },
  rows: { title: "Rows", note: "computed in training", unit: "rows" },
  pairs_skipped_share: { title: "Key pairs skipped", note: "share that the index selection left out", unit: "share" },
  rows_sampled: { title: "Rows sampled", note: "positions of texts that the engine computed", unit: "rows" },
  rows_asked: { title: "Rows asked for", note: "by the lengths of what was trained: computed and kept together", unit: "rows" },
  rows_computed: { title: "Rows computed", note: "by the trainer's forward", unit: "rows" },
  rows_kept: { title: "Rows kept", note: "that training read from what sampling kept, and did not compute", unit: "rows" },
  rows_recomputed: { title: "Rows computed again", note: "by a backward that recomputes", unit: "rows" },
  kept_rows_dropped: { title: "Kept rows dropped", note: "for want of memory (--keep-forward-megabytes)", unit: "rows" },
  kept_rows_compared: { title: "Kept rows compared", note: "with the same rows computed again (--verify-kept)", unit: "rows" },
  kept_bytes: { title: "Memory of kept rows", note: "the most so far", unit: "bytes" },
  publish_bytes: { title: "Published", note: "bytes that the store got since the step before", unit: "bytes" },
  publish_full_bytes: { title: "Whole weights", note: "bytes that they would take without what followers have", unit: "bytes" },
  publish_seconds: { title: "Waited for publishing", note: "seconds of the step", unit: "s" },
  publish_beside_seconds: { title: "Publishing", note: "seconds beside training", unit: "s" },
  publish_sequence: { title: "Snapshot", note: "number of the newest one", unit: "snapshots" },
  accepted_length: { title: "Accepted length", note: "tokens that a forward with a guess ahead gave, the model's own counted", unit: "tokens" },
  ranks_computed_seconds: { title: "Ranks computed", note: "seconds of the step, of process 0's ranks together", unit: "s" },
  ranks_waited_seconds: { title: "Ranks waited", note: "for other ranks and for what they send, of process 0's together", unit: "s" },
  ranks_sent_seconds: { title: "Ranks sent", note: "seconds in which what travels was packed and copied, of process 0's together", unit: "s" },
  ranks_saving_seconds: { title: "Saving", note: "seconds that training stood still for a checkpoint of its ranks", unit: "s" },
  ranks_bytes: { title: "Bytes between ranks", note: "received by process 0's, as in memory", unit: "bytes" },
  ranks_sent_bytes: { title: "Bytes sent between ranks", note: "the same as they travelled", unit: "bytes" },
  launch_start: { title: "Start", note: "of lockstep launch: after a loss the next one goes on", unit: "starts" },
  dense_attention: { title: "Dense attention", note: "1 while the indexer does not select", unit: "yes 1, no 0" },
};

const groups: Group[] = [
  { title: "Learning", keys: ["reward", "pass_at_1", "pass_at_group", "loss", "accuracy", "margin", "eval_loss", "eval_accuracy", "eval_margin", "chosen_reward", "rejected_reward", "chosen_logprob", "rejected_logprob", "shift", "index_loss", "mtp_loss", "mtp_variation", "mtp_index_loss", "entropy", "reference_k1", "reference_k3", "zero_spread", "groups_redrawn", "groups_dropped", "unanswered", "unjudged_tokens", "ended", "turns", "chains"] },
  { title: "Trainer against sampler", keys: ["different_bits", "k1", "k2", "k3", "clipped", "truncated", "largest_log_ratio"] },
  { title: "Critic", keys: ["explained_variance", "value_loss", "mean_value", "mean_return", "values_held", "advantage_min", "advantage_p10", "advantage_median", "advantage_p90", "advantage_max", "critic_gradient_norm", "critic_seconds"] },
  { title: "Optimiser", keys: ["learning_rate", "gradient_norm", "updates", "policy_k3", "policy_clipped", "mini_batches_skipped", "mtp_learning_rate", "mtp_gradient_norm"] },
  { title: "Speed", keys: ["tokens_per_second", "rollout_seconds", "train_seconds", "teacher_seconds", "seconds", "completions", "tokens", "trained_tokens", "rows", "proximal_forwards", "accepted_length", "pairs_skipped_share", "dense_attention"] },
  { title: "Kept forwards", keys: ["rows_sampled", "rows_asked", "rows_kept", "rows_computed", "rows_recomputed", "kept_rows_dropped", "kept_rows_compared", "kept_bytes"] },
  { title: "Publishing", keys: ["publish_seconds", "publish_beside_seconds", "publish_bytes", "publish_full_bytes", "publish_sequence"] },
  { title: "Ranks", keys: ["ranks_computed_seconds", "ranks_waited_seconds", "ranks_sent_seconds", "ranks_saving_seconds", "ranks_bytes", "ranks_sent_bytes", "launch_start"] },
];

// Keys with a name behind: a key for each teacher, for each kind of problem, for each depth of the layer for drafts.
const families: { begins: string; of: (name: string) => Meaning }[] = [
  { begins: "divergence_", of: (name) => ({ title: `Divergence from ${name}`, note: "of a teacher, mean over the tokens that it judged", unit: "nats" }) },
  { begins: "rate_", of: (name) => ({ title: `Rate of ${name}`, note: "probability of a whole reference of this kind, before it is trained (--hold-rate)", unit: "share" }) },
  { begins: "mtp_loss_", of: (depth) => ({ title: `Drafts' loss, depth ${depth}`, note: "of the layer of multi-token prediction", unit: "nats" }) },
  { begins: "mtp_overlap_", of: (depth) => ({ title: `Drafts' overlap, depth ${depth}`, note: "mean probability that its guess is accepted", unit: "share" }) },
];
const familyOf = (key: string) => families.find((family) => key.startsWith(family.begins));

export const meaning = (key: string): Meaning => {
  if (meanings[key]) return meanings[key];
  const family = familyOf(key);
  return family ? family.of(key.slice(family.begins.length)) : { title: key, note: "", unit: "" };
};

export function grouped(keys: string[]): Group[] {
  const named = keys.filter((key) => !meanings[key] && familyOf(key));
  const own = groups.map((group) => (group.title === "Learning" ? { ...group, keys: [...group.keys, ...named] } : group));
  const known = new Set(own.flatMap((group) => group.keys));
  const all = [...own, { title: "Other", keys: keys.filter((key) => !known.has(key)) }];
  return all.map((group) => ({ title: group.title, keys: group.keys.filter((key) => keys.includes(key)) })).filter((group) => group.keys.length > 0);
}
