// Batches in pieces, optimizer steps, checkpoints. Losses of preferences, of distillation and of clients are batch_loss_operation.cpp's, the likeliest
// tokens top_k_operation.cpp's, adapters from elsewhere adapter_operation.cpp's.
#include "host/model_operations.h"

#include <algorithm>
#include <cmath>

#include "base/error.h"
#include "base/log.h"
#include "host/batch_loss.h"
#include "host/model_state.h"
#include "serving/plain_name.h"
#include "train/optimizers/optimizer.h"

namespace lockstep {

namespace {
// The fields of an optim_step that errors name (docs/training-api.md): AdamW's parameters have one of their own, as clients of the protocol send them, and
// all other optimizers share the second.
constexpr const char *kAdamField = "adam_params", *kOtherField = "optimizer_params";
}  // namespace

std::string ModelOperations::forward_backward(const std::string& owner, const std::string& id, std::int64_t sequence, TrainingBatch batch,
                                              Encode<TrainingOutput> encode) {
  if (batch.loss.name == "custom" || is_batch_loss(batch.loss.name)) return forward_backward_custom(owner, id, sequence, std::move(batch), std::move(encode));
  const SentOperation sent = SentOperation(batch.forward_only ? "forward" : "forward_backward").add(batch);
  return to_.lanes.place(owner, id, sequence, sent, [&](const std::shared_ptr<HostedModel>& model, const std::string& request) {
    return std::make_shared<BatchOperation>(tools_, model, request, sequence, std::move(batch), std::move(encode));
  });
}

std::string ModelOperations::optim_step(const std::string& owner, const std::string& id, std::int64_t sequence, const OptimizerRequest& wanted,
                                        Encode<OptimizerOutput> encode) {
  const AdamParameters& sent = wanted.adam;
  SentOperation what("optim_step");
  for (const double value : {sent.learning_rate, sent.beta1, sent.beta2, sent.eps, sent.weight_decay, sent.max_norm, sent.gradient_scale,
                             static_cast<double>(wanted.divisor), static_cast<double>(wanted.norms)})
    what.add(value);
  const auto step = [this, wanted, encode = std::move(encode)](const OnExecutor& on, HostedModel& model, const std::string&) {
    AdamParameters a = wanted.adam;
    const ModelSettings settings = model.settings();
    const std::string& family = settings.optimizer;
    if (wanted.optimizer != family)
      fail(ErrorCode::invalid_argument, "the step is of optimizer '{}', the model's is {}, chosen when it was created; allowed are {}", wanted.optimizer,
           family, family == adamw().name ? kAdamField : fmt::format("{} of type {}", kOtherField, family));
    const auto require = [&](bool right, const char* name, double value, const char* allowed) {
      if (!right) fail(ErrorCode::invalid_argument, "{}.{} is {}, allowed is {}", family == adamw().name ? kAdamField : kOtherField, name, value, allowed);
    };
    require(a.learning_rate >= 0 && a.learning_rate <= 1e3, "learning_rate", a.learning_rate, "0 to 1000");
    require(a.beta1 >= 0 && a.beta1 < 1, "beta1", a.beta1, "0 to below 1");
    require(a.beta2 >= 0 && a.beta2 < 1, "beta2", a.beta2, "0 to below 1");
    require(a.eps >= 0 && std::isfinite(a.eps), "eps", a.eps, "a finite number of at least 0");
    require(a.weight_decay >= 0 && a.weight_decay <= 1e3, "weight_decay", a.weight_decay, "0 to 1000");
    require(a.max_norm >= 0 && a.max_norm <= 1e30, "grad_clip_norm", a.max_norm, "0 (off) and up");
    tools_.gradients.check_complete(on, model);
    TrainedModel& trained = tools_.resting.trained(on, model);
    const ModelWork& work = model.work.at(on);
    const std::int64_t tokens = work.gradient_tokens, sequences = work.gradient_sequences;
    const bool declares = work.gradient_declares;
    if (const std::int64_t count = wanted.divisor == GradientDivisor::loss_tokens ? tokens : sequences; wanted.divisor != GradientDivisor::none && count > 0)
      a.gradient_scale = 1.0 / static_cast<double>(count);
    a.group_norms = wanted.norms == GradientNorms::detailed;
    // Before anything is touched: where there is no room the gradients stay, and the step may be asked for again.
    const TurnRoom room = tools_.memory.turn(on, &model, tools_.memory.figures(on, settings).step, fmt::format("an optimizer step of model '{}'", model.id));
    const OptimResult result = [&] {
      try {
        return trained.optim_step(a);
      } catch (...) {
        tools_.gradients.drop(on, model);
        throw;
      }
    }();
    tools_.gradients.forget(on, model);  // a step that fails has dropped them, too
    tell_ranks(on, settings, trained);
    ModelRecord record;
    {
      const auto state = model.state.lock();
      state->record.steps = trained.steps();
      state->record.changed = true;
      state->record.declares = state->record.declares || declares;
      record = state->record;
    }
    to_.models.store(record);
    OptimizerOutput output{result.version, {{"grad_norm", result.gradient_norm}}};
    if (wanted.norms != GradientNorms::off)
      output.metrics.emplace_back("grad_norm_rms", result.gradient_norm / std::sqrt(static_cast<double>(std::max<std::int64_t>(1, result.elements))));
    for (const auto& [name, norm] : result.group_norms) output.metrics.emplace_back("grad_norm/" + name, norm);
    if (wanted.divisor != GradientDivisor::none) {
      output.metrics.emplace_back("num_loss_tokens", static_cast<double>(tokens));
      output.metrics.emplace_back("num_sequences", static_cast<double>(sequences));
    }
    return NumberedOperation::Worked{.result = encode(output)};
  };
  return to_.lanes.submit(owner, id, sequence, what.add(wanted.optimizer), step);
}

// Of statistics alone: the step is taken, and stays so where they cannot be asked.
void ModelOperations::tell_ranks(const OnExecutor& on, const ModelSettings& settings, const TrainedModel& trained) {
  try {
    commons_.statistics.ranks.take(commons_.base_of(on, settings).ranks.get(), trained.rank_uses());
  } catch (const Error& e) {
    log_warning("what the ranks did is not known", {{"error", e.what()}});
  }
}

ModelOperations::BegunCheckpoint ModelOperations::begin_checkpoint(const OnExecutor& on, HostedModel& model, const SaveRequest& wanted) {
  check_plain_name("path", wanted.name);
  check_ttl(wanted.ttl_seconds);
  const ModelSettings settings = model.settings();
  if (wanted.kind == "sampler_weights") commons_.refuse_critic(settings.base_model, kNothingToSample);
  if (wanted.kind == "external_weights" && settings.rank > 0)
    commons_.refuse_critic(settings.base_model, "whose adapter no other program reads; allowed is one that all weights are of (rank 0)");
  CheckpointRecord record;
  record.model = model.id;
  record.owner = model.owner;
  record.kind = wanted.kind;
  record.name = wanted.name;
  record.settings = settings;
  record.optimizer = wanted.kind == "weights";
  record.user_metadata = ClientJson(wanted.user_metadata);
  record.session = model.session;
  record.type = wanted.type;
  record.profile = commons_.runtime().profile.training_digest(model.record().declares);
  record.created = unix_now();
  if (wanted.ttl_seconds) record.expires = record.created + *wanted.ttl_seconds;
  if (to_.checkpoints.contains(record.path()) && !wanted.overwrite)
    fail(ErrorCode::already_exists, "the checkpoint {} exists already; overwrite=true replaces it", record.path());
  TrainedModel& trained = tools_.resting.trained(on, model);
  const bool merged = record.merged();
  if (merged) to_.files.check_merge(settings, wanted.precision);
  if (settings.base_only) trained.master_images();  // says that there is nothing to save
  record.steps = trained.steps();
  std::int64_t bytes = 0;  // in fp32, which nothing exceeds
  for (const FileTensor& tensor : (merged ? commons_.base_manifest() : trained.manifest()).files())
    bytes += tensor.size() * static_cast<std::int64_t>(sizeof(float));
  if (record.optimizer) bytes *= 3;
  to_.checkpoints.check_room(record.owner, record.path(), bytes, record.user_metadata.bytes() + record.settings.user_metadata.bytes());
  return {record, to_.checkpoints.begin(record, bytes)};
}

CheckpointRecord ModelOperations::write_checkpoint(const OnExecutor& on, HostedModel& model, const SaveRequest& wanted) {
  auto [record, place] = begin_checkpoint(on, model, wanted);
  TrainedModel& trained = tools_.resting.trained(on, model);
  const bool merged = record.merged();
  // Other programs' formats want all weights at once; our own is written a few parameters at a time, in room that is always there.
  TurnRoom room;
  if (record.kind == "external_weights" || merged) {
    MemoryRoom& memory = tools_.memory;
    const std::int64_t images = memory.figures(on, record.settings).reading + (merged ? memory.figures(on, {}).reading : 0);
    room = memory.turn(on, &model, images, fmt::format("writing the weights of model '{}' for other programs", model.id));
  }
  const std::vector<std::filesystem::path> others = to_.files.write(on, record, trained, wanted.precision);
  to_.checkpoints.put(record);
  std::error_code ignored;
  for (const std::filesystem::path& other : others) std::filesystem::remove_all(other, ignored);
  if (record.kind == "sampler_weights" && !merged) share_weights(on, trained, record);
  return record;
}

// The files hold the same bits under another identity (KeptForwards::Root). Without room for them they are read from there as ever.
void ModelOperations::share_weights(const OnExecutor& on, TrainedModel& trained, const CheckpointRecord& saved) {
  if (!commons_.base->options.kept_forwards) return;
  std::optional<MemoryLedger::Claim> room = commons_.base->ledger->try_claim("samplers", saved.owner, tools_.memory.figures(on, saved.settings).weights);
  if (room) to_.weights.keep(on, saved, tools_.memory.hold(trained.sampler_weights(), std::move(*room)));
}

// The weights are held, and no later step changes them, so training goes on meanwhile.
void ModelOperations::save_snapshot(const OnExecutor& on, HostedModel& model, const SaveRequest& wanted, const std::string& request,
                                    const Encode<CheckpointRecord>& encode) {
  const BegunCheckpoint begun = begin_checkpoint(on, model, wanted);
  SamplerWeights weights = tools_.resting.trained(on, model).sampler_weights();
  const std::int64_t bytes = tools_.memory.figures(on, begun.record.settings).weights;
  weights = tools_.memory.hold(std::move(weights), tools_.memory.claim(on, "samplers", begun.record.owner, bytes, fmt::format("saving '{}'", wanted.name)));
  to_.snapshots.save(weights, wanted.name, [this, begun, weights, request, encode](const SavedSnapshot* saved, const std::exception_ptr& error) {
    CheckpointRecord record = begun.record;
    try {
      if (!saved) std::rethrow_exception(error);
      record.snapshot = saved->id;
      record.channel = saved->channel;
      record.bytes = saved->bytes;
      to_.checkpoints.put(record);
    } catch (const std::exception& e) {
      if (saved) to_.snapshots.release(record);
      return commons_.futures.fail(request, e);
    }
    commons_.futures.resolve(request, encode(record));
    to_.weights.keep(record, weights);
  });
}

std::string ModelOperations::save(const std::string& owner, const std::string& id, std::int64_t sequence, const SaveRequest& wanted,
                                  Encode<CheckpointRecord> encode) {
  const SentOperation what = SentOperation("save of " + wanted.kind).add(wanted.name).add(wanted.type).add(wanted.precision);
  return to_.lanes.submit(owner, id, sequence, what,
                          [this, wanted, encode = std::move(encode)](const OnExecutor& on, HostedModel& model, const std::string& request) {
                            const bool merged = wanted.type == "merged_base";  // for other programs, as files
                            if (wanted.kind != "sampler_weights" || merged || !to_.snapshots.on())
                              return NumberedOperation::Worked{.result = encode(write_checkpoint(on, model, wanted))};
                            save_snapshot(on, model, wanted, request, encode);
                            return NumberedOperation::Worked{};
                          });
}

std::string ModelOperations::save_sampler(const std::string& owner, const std::string& id, std::int64_t sequence, bool inflight, Encode<SamplerRecord> encode) {
  to_.retention.look();
  const auto save = [this, owner, inflight, encode = std::move(encode)](const OnExecutor& on, HostedModel& model, const std::string&) {
    commons_.refuse_critic(model.settings().base_model, kNothingToSample);
    SamplerWeights weights = tools_.resting.trained(on, model).sampler_weights();
    SamplerRecord record;
    record.session = model.session;
    record.owner = owner;
    record.settings = model.settings();
    record.base_model = record.settings.base_model;
    const std::string what = fmt::format("a version of model '{}' to sample from", model.id);
    const std::int64_t bytes = tools_.memory.figures(on, record.settings).weights;
    record.settings.user_metadata = {};
    bool fits = true;
    if (inflight) {
      weights = tools_.memory.hold(std::move(weights), tools_.memory.claim(on, "samplers", owner, bytes, what));
    } else if (std::optional<MemoryLedger::Claim> room = commons_.base->ledger->try_claim("samplers", owner, bytes)) {
      weights = tools_.memory.hold(std::move(weights), std::move(*room));
    } else {
      fits = false;  // it goes to disk at once, which needs no room
    }
    if (inflight) {
      to_.samplers.set_inflight(on, model.id, weights);
      record.inflight_model = model.id;
    }
    record.id = to_.samplers.add(record, inflight ? SamplerWeights{} : weights);
    to_.samplers.spills().make_room(on);
    if (!fits) to_.samplers.spills().spill_one(on, record.id);
    return NumberedOperation::Worked{.result = encode(record)};
  };
  return to_.lanes.submit(owner, id, sequence, SentOperation("save_weights_for_sampler").add(inflight), save);
}

ModelRecord ModelOperations::take_up(HostedModel& model, const ModelSettings& settings, std::int64_t steps, const std::string& digest) {
  ModelRecord record;
  {
    const auto state = model.state.lock();
    state->lost.clear();
    state->record.settings = settings;
    state->record.steps = steps;
    state->record.changed = true;
    state->record.declares = says_declared(digest, commons_.runtime().profile);
    record = state->record;
  }
  to_.models.store(record);
  return record;
}

std::string ModelOperations::load(const std::string& owner, const std::string& id, std::int64_t sequence, const std::string& path, bool optimizer,
                                  Encode<ModelRecord> encode) {
  const auto load = [this, owner, path, optimizer, encode = std::move(encode)](const OnExecutor& on, HostedModel& model, const std::string&) {
    const CheckpointRecord from = to_.checkpoints.find(owner, path, "weights", model.id);
    if (optimizer && !from.optimizer) fail(ErrorCode::invalid_argument, "the checkpoint {} has no optimizer state", from.path());
    ModelSettings settings = model.settings();
    commons_.check_kind(from, settings.base_model);
    if (const ModelSettings& a = from.settings, &b = settings;
        a.rank != b.rank || a.train_attn != b.train_attn || a.train_mlp != b.train_mlp || a.train_unembed != b.train_unembed)
      fail(ErrorCode::invalid_argument, "the checkpoint {} is of rank {}, the model of rank {}; allowed are equal ones, on equal layers", from.path(), a.rank,
           b.rank);
    if (optimizer && from.settings.optimizer != settings.optimizer)
      fail(ErrorCode::invalid_argument,
           "the checkpoint {} has the state of optimizer {}, the model's is {}; load_state without the optimizer takes its weights", from.path(),
           from.settings.optimizer, settings.optimizer);
    settings.alpha = from.settings.alpha;  // the adapter's scale is part of what it is
    tools_.resting.replace(on, model, settings, [&](TrainedModel& fresh) {
      restore_model(on, fresh, to_.files.read(on, from, fresh.manifest()), commons_.runtime().profile, optimizer);
    });
    return NumberedOperation::Worked{.result = encode(take_up(model, settings, model.work.at(on).trained->steps(), from.profile))};
  };
  return to_.lanes.submit(owner, id, sequence, SentOperation("load").add(path).add(optimizer), load, /*heals=*/true);
}

}  // namespace lockstep
