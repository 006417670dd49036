// A loss that a client traced to here (host/custom_losses.h), over a batch. A piece of the batch is scored,
// each datum's loss gives weights -dC/dlogprob, and their gradient is taken with what the scoring kept (train/kept_passes.h).
#include "base/error.h"
#include "base/give_way.h"
#include "host/model_operations.h"

namespace lockstep {
namespace {
struct CustomRun {
  TrainingBatch batch;  // with what the loss reads
  std::shared_ptr<const CustomLoss> loss;
  PreparedBatch prepared;
  std::size_t next = 0;  // datum
  bool begun = false;
  double total = 0;
  std::vector<double> metrics;
};

// What the trainer sees of a batch: targets alone, and weights once they are known.
PreparedBatch prepare_custom_batch(const TrainingBatch& batch, const BatchLimits& limits) {
  TrainingBatch plain;
  plain.loss.name = "cross_entropy";
  for (std::size_t d = 0; d < batch.data.size(); ++d) {
    const TrainingDatum& datum = batch.data[d];
    for (const char* name : {"kept_tokens", "kept_by_rank"})
      if (datum.inputs.contains(name))
        fail(ErrorCode::unsupported,
             "data[{}].loss_fn_inputs.{} is given, and a custom loss is of log-probabilities over the whole vocabulary; allowed is a loss by name with "
             "target_logprob_support=sampling_support",
             d, name);
    plain.data.push_back({datum.tokens, {}, datum.routing_matrices});
    if (const auto targets = datum.inputs.find("target_tokens"); targets != datum.inputs.end()) plain.data.back().inputs.insert(*targets);
  }
  PreparedBatch prepared = prepare_batch(plain, limits);
  prepared.elementwise_loss = false;
  return prepared;
}

// The loss of data[d], as a number and as weights.
void weigh(CustomRun& run, std::size_t d, const std::vector<float>& logprobs) {
  try {
    const CustomLoss::Result result = run.loss->run(logprobs, run.prepared.shapes[d], run.batch.data[d].inputs);
    run.total += result.loss;
    run.metrics.resize(result.metrics.size(), 0.0);
    for (std::size_t m = 0; m < result.metrics.size(); ++m) run.metrics[m] += result.metrics[m];
    for (std::size_t i = 0; i < logprobs.size(); ++i) run.prepared.sequences[d].weights[i] = 0.0f - result.gradient[i];
  } catch (const Error& e) {
    fail(e.code(), "data[{}]: {}", d, e.message());
  }
}

TrainingOutput custom_output(const CustomRun& run, const ForwardBackwardResult& result) {
  TrainingOutput out = training_output(run.prepared, result);
  out.metrics["surrogate_loss:sum"] = out.metrics["loss:sum"];
  out.metrics["loss:sum"] = run.total;
  const std::vector<std::string> names = run.loss->metric_names();
  for (std::size_t m = 0; m < names.size(); ++m)
    out.metrics[names[m]] = names[m].ends_with(":mean") ? run.metrics[m] / static_cast<double>(run.batch.data.size()) : run.metrics[m];
  return out;
}
}  // namespace

std::string ModelOperations::forward_backward_custom(const std::string& owner, const std::string& id, std::int64_t sequence, TrainingBatch batch,
                                                     Encode<TrainingOutput> encode) {
  const SentOperation sent = SentOperation(batch.forward_only ? "forward" : "forward_backward").add(batch);
  auto run = std::make_shared<CustomRun>();
  run->batch = std::move(batch);
  const BatchLimits limits = batch_limits(commons_.runtime());
  const auto piece_of = [this, owner, run, limits, encode = std::move(encode)](const OnExecutor& on, HostedModel& model, const std::string& request) {
    ForwardBackwardResult result;
    try {
      TrainedModel& trained = tools_.resting.trained(on, model);
      if (!run->loss) {
        if (run->batch.forward_only) fail(ErrorCode::unsupported, "loss_fn of a forward is 'custom', allowed is cross_entropy");
        std::shared_ptr<const CustomLoss> loss = to_.custom_losses.find(owner, model.session, run->batch.loss);
        run->prepared = prepare_custom_batch(run->batch, limits);
        run->loss = std::move(loss);
      }
      std::vector<TrainSequence>& all = run->prepared.sequences;
      std::size_t end = piece_end(all, run->next, tools_.turn_tokens(on, model));
      const TurnRoom room = tools_.memory.piece(on, model, all, run->next, end, true);
      const auto piece = [&] {
        return std::vector<TrainSequence>(all.begin() + static_cast<std::ptrdiff_t>(run->next), all.begin() + static_cast<std::ptrdiff_t>(end));
      };
      const std::vector<std::vector<float>> logprobs = trained.score(piece());
      std::vector<std::size_t> places;
      for (std::size_t d = run->next; d < end; ++d) {
        give_way();  // a loss that a client traced may take long
        weigh(*run, d, logprobs[d - run->next]);
        places.push_back(d);
      }
      if (!run->begun) {  // what the loss itself refuses leaves earlier gradients as they are
        tools_.gradients.admit(on, model, end - run->next, all);
        trained.begin({.sequences = all.size()}, run->prepared.loss);
        tools_.gradients.mark(on, model);
        run->begun = true;
      }
      trained.add(places, piece());
      run->next = end;
      if (end < all.size()) return true;
      result = trained.finish();
    } catch (...) {
      if (run->begun) tools_.gradients.drop(on, model);
      throw;
    }
    tools_.gradients.count(on, model, result);
    commons_.statistics.computed(run->prepared.sequences, false);
    commons_.futures.resolve(request, encode(custom_output(*run, result)));
    return false;
  };
  return to_.lanes.submit(owner, id, sequence, sent, piece_of);
}

}  // namespace lockstep
