// Losses that clients traced to here (losses): made once a session, then run over batches. A piece of a batch is scored,
// each datum's loss gives weights -dC/dlogprob, and their gradient is taken with what the scoring kept (train/kept_passes.h).
#include "base/error.h"
#include "base/log.h"
#include "host/training_service.h"

namespace lockstep {
namespace {
constexpr std::size_t kMostLossBytes = std::size_t{1} << 20;
constexpr std::int64_t kMostLossesOfSession = 256;

struct CustomRun {
  TrainingBatch batch;  // with what the loss reads
  std::shared_ptr<const CustomLoss> loss;
  PreparedBatch prepared;
  std::size_t next = 0;  // datum
  bool begun = false;
  double total = 0;
  std::vector<double> metrics;
};

std::shared_ptr<const CustomLoss> loss_of_document(const TrainingJson& document) {
  return std::make_shared<const CustomLoss>(document.value("name", "loss"), document.value("inputs", TrainingJson()), document.value("graph", TrainingJson()));
}

// What the trainer sees of a batch: targets alone, and weights once they are known.
PreparedBatch prepare_custom_batch(const TrainingBatch& batch, const BatchLimits& limits) {
  TrainingBatch plain;
  plain.loss.name = "cross_entropy";
  for (const TrainingDatum& datum : batch.data) {
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

std::string TrainingService::create_custom_loss(const std::string& owner, const std::string& session, std::int64_t number, const TrainingJson& document, Encode<std::string> encode) {
  sessions_.find(owner, session);
  const std::string id = fmt::format("{}:loss:{}", session, number);
  std::string request;
  {
    const std::lock_guard lock(mutex_);
    if (stopping_) fail(ErrorCode::cancelled, "the server stops");
    if (const std::string* same = numbers_seen_.find(owner, "loss " + session, number)) return *same;
    const auto own = std::count_if(custom_losses_.begin(), custom_losses_.end(), [&](const auto& one) { return one.second.session == session; });
    if (own >= kMostLossesOfSession) fail(ErrorCode::resource_exhausted, "the session has {} custom losses, allowed are {}", own, kMostLossesOfSession);
    request = futures_.create(owner, id);
    numbers_seen_.put(owner, "loss " + session, number, request);
  }
  try {
    if (!options_.custom_losses) fail(ErrorCode::unsupported, "custom losses run in the client here; the server was started with --custom-loss client");
    TrainingJson record = document;
    record["owner"] = owner;
    record["session"] = session;
    const std::string text = record.dump(-1, ' ', false, TrainingJson::error_handler_t::replace);
    if (text.size() > kMostLossBytes) fail(ErrorCode::invalid_argument, "the loss has {} bytes, allowed are {}", text.size(), kMostLossBytes);
    std::shared_ptr<const CustomLoss> loss = loss_of_document(record);
    store_->put("custom_loss", id, text);
    {
      const std::lock_guard lock(mutex_);
      custom_losses_[id] = {owner, session, std::move(loss)};
    }
    futures_.resolve(request, encode(id));
  } catch (const std::exception& e) {
    futures_.fail(request, e);
  }
  return request;
}

void TrainingService::load_custom_losses() {
  store_->each("custom_loss", [&](const std::string& id, const std::string& text) {
    try {
      const TrainingJson document = TrainingJson::parse(text);
      custom_losses_[id] = {document.at("owner").get<std::string>(), document.at("session").get<std::string>(), loss_of_document(document)};
    } catch (const std::exception& e) {
      log_warning("a custom loss of the state cannot be read any more", {{"loss", id}, {"reason", e.what()}});
    }
  });
}

std::shared_ptr<const CustomLoss> TrainingService::custom_loss(const std::string& owner, const std::string& session, const LossRequest& wanted) {
  const auto named = wanted.config.find("loss_id");
  const auto* id = named == wanted.config.end() ? nullptr : std::get_if<std::string>(&named->second);
  if (!id || wanted.config.size() != 1) fail(ErrorCode::invalid_argument, "loss_fn_config of the loss custom has {} entries, allowed is a text loss_id alone", wanted.config.size());
  const std::lock_guard lock(mutex_);
  const auto found = custom_losses_.find(*id);
  if (found == custom_losses_.end() || found->second.owner != owner || found->second.session != session)
    fail(ErrorCode::not_found, "loss_fn_config.loss_id is '{}', allowed are losses that create_custom_loss made in the model's session", id->substr(0, 128));
  return found->second.loss;
}

std::string TrainingService::forward_backward_custom(const std::string& owner, const std::string& id, std::int64_t sequence, TrainingBatch batch, Encode<TrainingOutput> encode) {
  auto run = std::make_shared<CustomRun>();
  run->batch = std::move(batch);
  const BatchLimits limits = batch_limits(*base_->opened.runtime);
  return submit(owner, id, sequence, [this, owner, run, limits, encode = std::move(encode)](Model& model, const std::string& request) {
    TrainedModel& trained = this->trained(model);
    ForwardBackwardResult result;
    try {
      if (!run->loss) {
        if (run->batch.forward_only) fail(ErrorCode::unsupported, "loss_fn of a forward is 'custom', allowed is cross_entropy");
        std::shared_ptr<const CustomLoss> loss = custom_loss(owner, model.record.session, run->batch.loss);
        run->prepared = prepare_custom_batch(run->batch, limits);
        run->loss = std::move(loss);
      }
      std::vector<TrainSequence>& all = run->prepared.sequences;
      std::size_t end = piece_end(all, run->next, turn_tokens(model));
      const TurnRoom room = admit_piece(model, all, run->next, end, true);
      const auto piece = [&] { return std::vector<TrainSequence>(all.begin() + static_cast<std::ptrdiff_t>(run->next), all.begin() + static_cast<std::ptrdiff_t>(end)); };
      const std::vector<std::vector<float>> logprobs = trained.score(piece());
      std::vector<std::size_t> places;
      for (std::size_t d = run->next; d < end; ++d) {
        weigh(*run, d, logprobs[d - run->next]);
        places.push_back(d);
      }
      if (!run->begun) {  // what the loss itself refuses leaves earlier gradients as they are
        check_held(model);
        admit_gradient(model, end - run->next, all.size());
        trained.begin(all.size(), run->prepared.loss);
        mark_gradients(model);
        run->begun = true;
      }
      trained.add(places, piece());
      run->next = end;
      if (end < all.size()) return true;
      result = trained.finish();
    } catch (...) {
      if (run->begun) drop_gradients(model);
      throw;
    }
    model.gradient_tokens += result.gradient_tokens;
    model.gradient_sequences += result.gradient_sequences;
    statistics_.computed(run->prepared.sequences, false);
    futures_.resolve(request, encode(custom_output(*run, result)));
    return false;
  });
}

}  // namespace lockstep
