// Times whole forwards and training steps of a model folder on random tokens: what a user waits for, without HTTP or text.
// Knows no command line. One thread.
//   OpenedModel opened = open_model({.model = "models/countdown-glm"}); ModelTiming t = time_decode(opened, {.streams = 8}, {2.0});
#pragma once
#include <functional>
#include <string>
#include <utility>
#include <vector>

#include "benchmark/timing.h"
#include "serving/loading.h"

namespace lockstep {

struct ModelTiming {
  Timing time;                   // of one run: a prompt, a step of all streams, a training step
  std::int64_t tokens = 0;       // that one run generates or trains on
  double tokens_per_second = 0;  // of the median
  double first_loss = 0;         // of training: the mean loss of a token before the first step
  double deposit_share = -1;     // of training, where asked for: the part of its processor time in deposits into accumulators
  // Of training, where asked for: the part of its processor time in each kind of kernel (kernel_groups.h), the largest first; and processor time
  // over elapsed time, which equals the number of threads if none of them ever waited.
  std::vector<std::pair<std::string, double>> kernel_shares = {};
  double busy_processors = 0;
  std::int64_t samples = 0;                          // of the profile that the shares are made from
  double rollout_seconds = 0, learning_seconds = 0;  // of GRPO steps, medians: sampling; forward, backward and optimizer
  double prompt_seconds = 0;                         // of decoding: before it, until every stream had its first token
};

// One prompt of `tokens` in one forward, and the first token after it.
ModelTiming time_prefill(const OpenedModel& opened, std::int64_t tokens, const TimeBudget& budget);

struct DecodeCase {
  std::int64_t streams = 1;
  std::int64_t prompt = 128;  // tokens before the first one that is timed
  // Runs what is not timed, the prompts: where operations are measured, OperationProfile::leave_out.
  std::function<void(const std::function<void()>&)> leave_out = [](const std::function<void()>& work) { work(); };
};
// Steps in which every stream gets one token; each is timed alone, so the context grows while it is measured.
ModelTiming time_decode(const OpenedModel& opened, const DecodeCase& shape, const TimeBudget& budget);

struct TrainCase {
  std::int64_t sequences = 4, length = 256;
  std::int64_t micro_batch = 0;  // sequences a micro-batch; 0: all in one
  bool checkpoint_activations = false;
  std::string optimizer_folder;                  // not empty: the optimizer's state is in a file there (train/options.h)
  std::vector<std::vector<std::int32_t>> texts;  // token ids to train on, n + 1 for n targets; empty: random ones of `length`
  bool deposits = false;                         // measure deposit_share
  bool by_kernel = false;                        // measure kernel_shares
  std::int64_t lora_rank = 0;                    // above 0: of an adapter of attention and MLP, over frozen weights; 0: all parameters
};
// forward_backward of all sequences with cross-entropy and optim_step.
ModelTiming time_train(OpenedModel opened, const TrainCase& shape, const TimeBudget& budget);

struct RlCase {
  std::int64_t prompts = 8, samples = 8;  // a group of samples a prompt
  std::int64_t prompt = 16, tokens = 32;  // of each
};
// GRPO steps: sample all groups under the newest weights, advantages within each group (rewards are random numbers, which changes no
// cost), the clipped policy loss with prompts' forwards shared, optim_step, and the engine takes the new weights. ModelTiming::tokens
// counts the sampled tokens.
ModelTiming time_rl(OpenedModel opened, const RlCase& shape, const TimeBudget& budget);

// What training steps on samples of one prompt share: nothing, the prompt's forward (no bit changes), or its backward too (bits may change).
enum class PrefixSharing { off, forward, backward };
// Training steps on groups of samples of one prompt, without sampling, for each of `kinds` in turns. ModelTiming::tokens counts those of all rows.
std::vector<ModelTiming> time_prefix_sharing(OpenedModel opened, const RlCase& shape, const std::vector<PrefixSharing>& kinds, const TimeBudget& budget);

// The most memory this process has held so far, bytes.
std::int64_t peak_memory();

}  // namespace lockstep
