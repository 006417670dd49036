// A batch under a loss that is a function of log-probabilities (host/batch_loss.h). A piece of the batch is scored, the loss gives weights
// -dLoss/dlogprob, and their gradient is taken with what the scoring kept (train/kept_passes.h).
#include <algorithm>
#include <chrono>
#include <cmath>
#include <iterator>
#include <numeric>
#include <optional>

#include "base/error.h"
#include "base/give_way.h"
#include "host/batch_loss.h"
#include "host/batch_pieces.h"
#include "host/model_operations.h"
#include "host/shared_prompts.h"
#include "train/forward_pass.h"
#include "train/kept_passes.h"
#include "train/rank_record.h"

namespace lockstep {
namespace {
struct BatchLossRun {
  TrainingBatch batch;                      // with what the loss reads
  std::optional<CheckpointRecord> teacher;  // what its path meant in the first piece
  std::unique_ptr<BatchLoss> loss;
  PreparedBatch prepared;
  std::size_t next = 0;                       // of the prepared sequences
  std::size_t weighed = 0;                    // so many of them are, and have weights of the loss
  std::vector<std::vector<float>> scored;     // log-probabilities from `next` on, until all of a piece is weighed
  std::vector<std::vector<float>> untrained;  // log-probabilities of those that are compared with
  MemoryLedger::Claim weighing;               // of what a traced loss computes for a datum, while a turn weighs
  bool begun = false;
};

// The teacher's weights, for one piece: a batch that waits, for its turn or between pieces, holds none of them, which nobody else could have the memory of.
// Null: it has no teacher.
SamplerWeights teacher_of_piece(const OnExecutor& on, Checkpoints& checkpoints, CheckpointWeights& weights, const std::string& owner, BatchLossRun& run) {
  const std::string path = teacher_option(run.batch);
  if (path.empty()) return {};
  const CheckpointRecord now = checkpoints.find(owner, run.teacher ? run.teacher->path() : path, "sampler_weights");
  if (run.teacher && (now.created != run.teacher->created || now.snapshot != run.teacher->snapshot))
    fail(ErrorCode::invalid_argument, "the teacher {} was overwritten in the middle of the batch; send the batch again", now.path());
  run.teacher = now;
  return weights.of_record(on, owner, now);
}

// What the loss made of a sequence. Before the batch begins, so that earlier gradients stay as they are.
void check_weighed(const BatchLossRun& run, std::size_t place) {
  const std::vector<float>& weights = run.prepared.sequences[place].weights;
  if (!std::all_of(weights.begin(), weights.end(), [](float weight) { return std::isfinite(weight); }))
    fail(ErrorCode::numeric, "data[{}]: the loss's derivative by a log-probability is beyond fp32, or no number", run.loss->datum(place));
}

// Claims what a traced loss computes before it is taken. The claim grows with the datum that takes most, and ends with the turn.
void claim_for_loss(const OnExecutor& on, MemoryRoom& memory, const HostedModel& model, BatchLossRun& run, std::int64_t bytes) {
  if (bytes <= run.weighing.bytes()) return;
  memory.grow(on, run.weighing, bytes, fmt::format("a datum under a traced loss of model '{}' ({} in all so far)", model.id, megabytes_text(bytes)));
}

// Weighs what was scored up to `end`, for so many seconds, one at least. True: all of it. A loss that a client traced may take seconds for each datum, and so
// may a distribution over a large vocabulary: others have turns in between.
bool weigh_for(BatchLossRun& run, std::size_t end, double seconds) {
  using Clock = std::chrono::steady_clock;
  const Clock::time_point began = Clock::now();
  const std::size_t together = run.loss->together();
  for (bool first = true; run.weighed < end; first = false) {
    give_way();
    if (!first && std::chrono::duration<double>(Clock::now() - began).count() >= seconds) return false;
    run.loss->weigh(run.prepared, run.weighed, std::span<const std::vector<float>>(run.scored).subspan(run.weighed - run.next, together));
    for (std::size_t i = 0; i < together; ++i) check_weighed(run, run.weighed + i);
    run.weighed += together;
  }
  return true;
}

// Log-probabilities of the targets under weights that nobody trains here. Weights for sampling are whole on the first rank's runtime, whatever the layout,
// so that rank computes alone and the others wait; no bit depends on ranks.
std::vector<std::vector<float>> scores_under(Runtime& runtime, const SamplerWeights& weights, const std::vector<TrainSequence>& piece) {
  LossOptions none;
  none.kind = LossKind::none;
  ForwardBackwardResult result;
  result.make_room(piece.size(), none.kind);
  RowSums sums;
  std::vector<ForwardPass::Job> jobs(1);
  jobs[0].data = &piece, jobs[0].loss = &none, jobs[0].result = &result, jobs[0].sums = &sums, jobs[0].adapter = weights.adapter.get();
  jobs[0].part.resize(piece.size());
  std::iota(jobs[0].part.begin(), jobs[0].part.end(), std::size_t{0});
  ForwardPass pass(runtime, TrainerOptions{});
  pass.run(*weights.weights, ForwardPass::Settings{}, jobs);
  return std::move(result.logprobs);
}

TrainingOutput batch_loss_output(const BatchLossRun& run, ForwardBackwardResult result) {
  result.logprobs.insert(result.logprobs.begin(), run.untrained.begin(), run.untrained.end());
  TrainingOutput out = training_output(run.prepared, result);
  std::vector<DatumOutput> by_datum(out.data.size());
  for (std::size_t place = 0; place < by_datum.size(); ++place) by_datum[run.loss->datum(place)] = std::move(out.data[place]);
  out.data = std::move(by_datum);
  out.metrics["surrogate_loss:sum"] = out.metrics["loss:sum"];
  for (const auto& [name, value] : run.loss->metrics()) out.metrics[name] = value;
  return out;
}
}  // namespace

std::string ModelOperations::forward_backward_custom(const std::string& owner, const std::string& id, std::int64_t sequence, TrainingBatch batch,
                                                     Encode<TrainingOutput> encode) {
  const SentOperation sent = SentOperation(batch.forward_only ? "forward" : "forward_backward").add(batch);
  auto run = std::make_shared<BatchLossRun>();
  run->batch = std::move(batch);
  const auto piece_of = [this, owner, run, encode = std::move(encode)](const OnExecutor& on, HostedModel& model, const std::string&) {
    ForwardBackwardResult result;
    try {
      const SamplerWeights teacher = teacher_of_piece(on, to_.checkpoints, to_.weights, owner, *run);  // before the model, which its memory may take from there
      TrainedModel& trained = tools_.resting.trained(on, model);
      if (!run->loss) {
        const std::string& name = run->batch.loss.name;
        const BatchLimits limits = tools_.limits(on, model);
        if (run->batch.forward_only)
          fail(ErrorCode::unsupported, "loss_fn of a forward is '{}', allowed is {}", name, limits.values ? "value" : "cross_entropy");
        const bool shares = shares_backward(run->batch.loss);
        run->batch.loss.config.erase(kSharePrompts);  // no option of the loss's own
        if (name == "custom") {
          const auto claimed = [this, weighed = run.get(), whose = &model](std::int64_t bytes) {
            claim_for_loss(OnExecutor(*commons_.base->executor), tools_.memory, *whose, *weighed, bytes);
          };
          run->loss = make_custom_batch_loss(run->batch, to_.custom_losses.find(owner, model.session, run->batch.loss), shares, limits, run->prepared, claimed);
        } else {
          run->loss = make_batch_loss(run->batch, limits, run->prepared);
        }
        if (shares) share_weighed_prompts(*run->loss, limits.max_positions, run->prepared);
      }
      std::vector<TrainSequence>& all = run->prepared.sequences;
      const std::size_t untrained = run->loss->untrained();
      const bool compared = run->next < untrained;
      std::size_t end = std::min(piece_end(all, run->next, tools_.turn_tokens(on, model)), compared ? untrained : all.size());
      const auto whole = [&] {  // data that are one thing stay together
        const std::size_t together = run->loss->together(), over = (end - run->next) % together;
        if (over > 0) end = end - run->next > together ? end - over : run->next + together;
      };
      whole();
      const TurnRoom room = tools_.memory.piece(on, model, all, run->next, end, !compared);
      whole();
      const auto piece = [&] {
        return std::vector<TrainSequence>(all.begin() + static_cast<std::ptrdiff_t>(run->next), all.begin() + static_cast<std::ptrdiff_t>(end));
      };
      if (compared) {
        const KeptPasses::Pause pause(commons_.base->options.kept.get());  // nobody asks for their gradient
        std::vector<std::vector<float>> logprobs = trained.score(piece());
        run->loss->compare(run->prepared, run->next, logprobs);
        std::move(logprobs.begin(), logprobs.end(), std::back_inserter(run->untrained));
        run->next = end;
        return NumberedOperation::Worked{.again = true};
      }
      run->weighed = std::max(run->weighed, run->next);
      if (run->next + run->scored.size() < end) {
        if (teacher.weights) run->loss->told(run->next, scores_under(commons_.runtime(), teacher, piece()));
        run->scored = trained.score(piece());
      }
      run->weighing = tools_.memory.claim(on, "losses", owner, 0, "a loss");
      const bool all_weighed = weigh_for(*run, end, commons_.options.turn_seconds);
      run->weighing.release();
      if (!all_weighed) return NumberedOperation::Worked{.again = true};
      std::vector<std::size_t> places(end - run->next);
      std::iota(places.begin(), places.end(), run->next - untrained);
      if (!run->begun) {  // what the loss itself refuses leaves earlier gradients as they are
        if (untrained == 0) tools_.gradients.admit(on, model, end - run->next, all);
        else tools_.gradients.admit(on, model, end - run->next, {all.begin() + static_cast<std::ptrdiff_t>(untrained), all.end()});
        trained.begin({.sequences = all.size() - untrained}, run->prepared.loss);
        tools_.gradients.mark(on, model);
        run->begun = true;
      }
      trained.add(places, piece());
      run->scored.erase(run->scored.begin(), run->scored.begin() + static_cast<std::ptrdiff_t>(end - run->next));
      run->next = end;
      if (end < all.size()) return NumberedOperation::Worked{.again = true};
      result = trained.finish();
    } catch (...) {
      run->weighing.release();
      if (run->begun) tools_.gradients.drop(on, model);
      throw;
    }
    tools_.gradients.count(on, model, result, run->prepared.declares);
    commons_.statistics.computed(run->prepared.sequences, false);
    return NumberedOperation::Worked{.result = encode(batch_loss_output(*run, std::move(result)))};
  };
  return to_.lanes.submit(owner, id, sequence, sent, piece_of);
}

}  // namespace lockstep
