// What operations do to a model, on the executor: batches in pieces, optimizer steps, checkpoints.
#include <algorithm>
#include <cmath>

#include "base/error.h"
#include "base/log.h"
#include "serving/plain_name.h"
#include "host/operation.h"

namespace lockstep {

namespace {
// What stands in a folder, or a file's own.
std::int64_t bytes_of_files(const std::filesystem::directory_entry& entry) {
  std::error_code error;
  if (!entry.is_directory(error)) return static_cast<std::int64_t>(entry.file_size(error));
  std::int64_t bytes = 0;
  for (const auto& inner : std::filesystem::recursive_directory_iterator(entry.path(), error))
    if (inner.is_regular_file(error)) bytes += static_cast<std::int64_t>(inner.file_size(error));
  return bytes;
}
}  // namespace

TrainedModel& TrainingService::trained(Model& model) {
  if (model.trained) return *model.trained;
  rest_idle_models(model);
  MemoryLedger::Claim room = model_room(model, model.record.settings);
  const TurnRoom reading = reading_room(model.record.settings, fmt::format("reading model '{}' from disk", model.record.id));
  auto fresh = make_trained_model(*base_, model.record.settings);  // the model's only when it is what it was
  if (model.record.steps > 0 || std::filesystem::exists(living_folder(model.record))) {
    std::optional<LoadedCheckpoint> loaded = load_latest_checkpoint(living_folder(model.record), fresh->manifest());
    if (!loaded) fail(ErrorCode::corrupt_file, "model '{}' is not on disk any more; load_state of a checkpoint goes on from there", model.record.id);
    fresh->restore(std::move(loaded->checkpoint), true);
  }
  model.trained = std::move(fresh);
  model.room = std::move(room);
  model.most_rows = 0;
  return *model.trained;
}

// Models in memory that are too many go to disk, those first that were not used for the longest time. Gradients that no step has taken
// hold a model in memory.
void TrainingService::rest_idle_models(const Model& wanted) {
  std::int64_t left = 0;
  {
    const std::lock_guard lock(mutex_);
    for (const auto& [id, model] : models_) left += model->trained && model.get() != &wanted;
  }
  if (left < options_.max_models) return;
  for (const std::shared_ptr<Model>& model : idle_models()) {
    if (model.get() == &wanted) continue;
    rest(*model);
    if (--left < options_.max_models) return;
  }
  if (left >= options_.max_models)
    fail(ErrorCode::resource_exhausted, "there are {} models in memory with gradients that no optim_step has taken, allowed are {}; step or unload some", left, options_.max_models);
}

std::string TrainingService::forward_backward(const std::string& owner, const std::string& id, std::int64_t sequence, TrainingBatch batch, Encode<TrainingOutput> encode) {
  if (batch.loss.name == "custom") return forward_backward_custom(owner, id, sequence, std::move(batch), std::move(encode));
  return place(owner, id, sequence, [&](const std::shared_ptr<Model>& model, const std::string& request) {
    return std::make_shared<BatchOperation>(*this, model, request, sequence, std::move(batch), std::move(encode));
  });
}

void TrainingService::mark_gradients(Model& model) {
  const std::lock_guard lock(mutex_);
  model.record.open_gradients = model.record.changed = true;
}

void TrainingService::undo_early(Model& model) {
  bool gradients = false;
  for (const auto& operation : model.early) gradients = operation->reset() || gradients;
  statistics_.undone += model.early.size();
  model.early.clear();
  if (gradients) drop_gradients(model);
}

void TrainingService::undo_stray(Model& model) {
  std::int64_t next = 0;
  {
    const std::lock_guard lock(mutex_);
    next = model.next;
  }
  if (std::any_of(model.early.begin(), model.early.end(), [&](const auto& one) { return one->stray(next); })) undo_early(model);
}

void TrainingService::drop_gradients(Model& model) {
  model.forget_gradients();
  if (model.trained) model.trained->drop();
  model.gradient_room.release();
  const std::lock_guard lock(mutex_);
  model.record.open_gradients = false;
}

std::string TrainingService::optim_step(const std::string& owner, const std::string& id, std::int64_t sequence, const OptimizerRequest& wanted, Encode<OptimizerOutput> encode) {
  return submit(owner, id, sequence, [this, wanted, encode = std::move(encode)](Model& model, const std::string& request) {
    AdamParameters a = wanted.adam;
    const std::string& family = model.record.settings.optimizer;
    if (wanted.optimizer != family)
      fail(ErrorCode::invalid_argument, "the step is of optimizer '{}', the model's is {}, chosen when it was created; allowed are {}", wanted.optimizer, family,
           family == "adamw" ? "adam_params" : "optimizer_params of type " + family);
    const auto require = [&](bool right, const char* name, double value, const char* allowed) {
      if (!right) fail(ErrorCode::invalid_argument, "{}.{} is {}, allowed is {}", family == "adamw" ? "adam_params" : "optimizer_params", name, value, allowed);
    };
    require(a.learning_rate >= 0 && a.learning_rate <= 1e3, "learning_rate", a.learning_rate, "0 to 1000");
    require(a.beta1 >= 0 && a.beta1 < 1, "beta1", a.beta1, "0 to below 1");
    require(a.beta2 >= 0 && a.beta2 < 1, "beta2", a.beta2, "0 to below 1");
    require(a.eps >= 0 && a.eps <= 1, "eps", a.eps, "0 to 1");
    require(a.weight_decay >= 0 && a.weight_decay <= 1e3, "weight_decay", a.weight_decay, "0 to 1000");
    require(a.max_norm >= 0 && a.max_norm <= 1e30, "grad_clip_norm", a.max_norm, "0 (off) and up");
    TrainedModel& trained = this->trained(model);
    const std::int64_t tokens = model.gradient_tokens, sequences = model.gradient_sequences;
    if (const std::int64_t count = wanted.divisor == GradientDivisor::loss_tokens ? tokens : sequences; wanted.divisor != GradientDivisor::none && count > 0)
      a.gradient_scale = 1.0 / static_cast<double>(count);
    a.group_norms = wanted.norms == GradientNorms::detailed;
    // Before anything is touched: where there is no room the gradients stay, and the step may be asked for again.
    const TurnRoom room = turn_room(&model, memory_of(model.record.settings).step, fmt::format("an optimizer step of model '{}'", model.record.id));
    model.forget_gradients();  // a step that fails has dropped them, too
    const OptimResult result = [&] {
      try {
        return trained.optim_step(a);
      } catch (...) {
        drop_gradients(model);
        throw;
      }
    }();
    model.gradient_room.release();
    ModelRecord record;
    {
      const std::lock_guard lock(mutex_);
      model.record.steps = trained.steps();
      model.record.open_gradients = false;
      model.record.changed = true;
      record = model.record;
    }
    keep(record);
    OptimizerOutput output{result.version, {{"grad_norm", result.gradient_norm}}};
    if (wanted.norms != GradientNorms::off)
      output.metrics.emplace_back("grad_norm_rms", result.gradient_norm / std::sqrt(static_cast<double>(std::max<std::int64_t>(1, result.elements))));
    for (const auto& [name, norm] : result.group_norms) output.metrics.emplace_back("grad_norm/" + name, norm);
    if (wanted.divisor != GradientDivisor::none) {
      output.metrics.emplace_back("num_loss_tokens", static_cast<double>(tokens));
      output.metrics.emplace_back("num_sequences", static_cast<double>(sequences));
    }
    futures_.resolve(request, encode(output));
    return false;
  });
}

CheckpointRecord TrainingService::write_checkpoint(Model& model, const SaveRequest& wanted) {
  check_plain_name("path", wanted.name);
  check_ttl(wanted.ttl_seconds);
  CheckpointRecord record;
  record.model = model.record.id;
  record.owner = model.record.owner;
  record.kind = wanted.kind;
  record.name = wanted.name;
  record.settings = model.record.settings;
  record.optimizer = wanted.kind == "weights";
  record.user_metadata = KeptJson(wanted.user_metadata);
  record.session = model.record.session;
  record.type = wanted.type;
  record.profile = base_->opened.runtime->profile.digest();
  record.created = unix_now();
  if (wanted.ttl_seconds) record.expires = record.created + *wanted.ttl_seconds;
  {
    const std::lock_guard lock(mutex_);
    if (checkpoints_.contains(record.path()) && !wanted.overwrite)
      fail(ErrorCode::already_exists, "the checkpoint {} exists already; overwrite=true replaces it", record.path());
  }
  TrainedModel& trained = this->trained(model);
  const bool merged = record.merged();
  if (merged) check_merge(model.record.settings, wanted.precision);
  if (model.record.settings.base_only) trained.checkpoint(false);  // says that there is nothing to save
  record.steps = trained.steps();
  std::int64_t bytes = 0;  // in fp32, which nothing exceeds
  for (const FileTensor& tensor : (merged ? base_->opened.loaded.model->manifest() : trained.manifest()).files()) bytes += tensor.size() * static_cast<std::int64_t>(sizeof(float));
  if (record.optimizer) bytes *= 3;
  check_checkpoint_room(record.owner, record.path(), bytes, record.user_metadata.bytes() + record.settings.user_metadata.bytes());
  const std::filesystem::path folder = checkpoint_folder(record);
  const bool external = record.kind == "external_weights";
  // Other programs' formats want all weights at once; our own is written a few parameters at a time, in room that is always there.
  TurnRoom room;
  if (external || merged) {
    const std::int64_t images = memory_of(model.record.settings).reading + (merged ? memory_of({}).reading : 0);
    room = turn_room(&model, images, fmt::format("writing the weights of model '{}' for other programs", model.record.id));
  }
  std::error_code error;
  std::filesystem::create_directories(external ? folder.parent_path() : folder, error);
  if (error) fail(ErrorCode::io, "the folder {} cannot be made: {}", folder.string(), error.message());
  if (external) {
    write_external(record, trained.checkpoint(false).masters);
  } else if (merged) {
    write_merged(record.settings, trained.checkpoint(false).masters, wanted.precision, folder);
    record.settings.rank = 0;
  } else {
    write_trained_model(folder, trained, base_->opened.runtime->profile, record.optimizer);
  }
  std::vector<std::filesystem::path> others;  // of one that this replaces
  for (const auto& entry : std::filesystem::directory_iterator(folder, error))
    if (!external && (entry.path().filename() == kMergedFolder) != merged) others.push_back(entry.path());
    else record.bytes += bytes_of_files(entry);
  {
    const std::lock_guard lock(mutex_);
    store_->put("checkpoint", record.path(), to_json(record).dump());  // from here on it is this one, whatever ends the server
    checkpoints_[record.path()] = record;
  }
  for (const std::filesystem::path& other : others) std::filesystem::remove_all(other, error);
  return record;
}

std::string TrainingService::save(const std::string& owner, const std::string& id, std::int64_t sequence, const SaveRequest& wanted, Encode<CheckpointRecord> encode) {
  return submit(owner, id, sequence, [this, wanted, encode = std::move(encode)](Model& model, const std::string& request) {
    futures_.resolve(request, encode(write_checkpoint(model, wanted)));
    return false;
  });
}

std::string TrainingService::save_sampler(const std::string& owner, const std::string& id, std::int64_t sequence, bool inflight, Encode<SamplerRecord> encode) {
  sweep();
  return submit(owner, id, sequence, [this, owner, inflight, encode = std::move(encode)](Model& model, const std::string& request) {
    SamplerWeights weights = trained(model).sampler_weights();
    const std::string what = fmt::format("a version of model '{}' to sample from", model.record.id);
    const std::int64_t bytes = memory_of(model.record.settings).weights;
    bool fits = true;
    if (inflight) {
      weights = hold_room(std::move(weights), room_for("samplers", owner, bytes, what));
    } else if (std::optional<MemoryLedger::Claim> room = base_->ledger->try_claim("samplers", owner, bytes)) {
      weights = hold_room(std::move(weights), std::move(*room));
    } else {
      fits = false;  // it goes to disk at once, which needs no room
    }
    SamplerRecord record;
    record.session = model.record.session;
    record.owner = owner;
    record.base_model = model.record.settings.base_model;
    record.settings = model.record.settings;
    record.settings.user_metadata = {};
    if (inflight) {
      const std::lock_guard lock(mutex_);
      model.inflight = weights;
      record.inflight_model = model.record.id;
    }
    record.id = new_sampler(record, inflight ? SamplerWeights{} : weights);
    spill_samplers();
    if (!fits) spill_sampler(record.id);
    futures_.resolve(request, encode(record));
    return false;
  });
}

std::string TrainingService::load(const std::string& owner, const std::string& id, std::int64_t sequence, const std::string& path, bool optimizer, Encode<ModelRecord> encode) {
  return submit(
      owner, id, sequence,
      [this, owner, path, optimizer, encode = std::move(encode)](Model& model, const std::string& request) {
        const CheckpointRecord from = checkpoint_at(owner, path, model.record.id);
        if (optimizer && !from.optimizer) fail(ErrorCode::invalid_argument, "the checkpoint {} has no optimizer state", from.path());
        if (const ModelSettings &a = from.settings, &b = model.record.settings; a.rank != b.rank || a.train_attn != b.train_attn || a.train_mlp != b.train_mlp || a.train_unembed != b.train_unembed)
          fail(ErrorCode::invalid_argument, "the checkpoint {} is of rank {}, the model of rank {}; allowed are equal ones, on equal layers", from.path(), a.rank, b.rank);
        if (optimizer && from.settings.optimizer != model.record.settings.optimizer)
          fail(ErrorCode::invalid_argument, "the checkpoint {} has the state of optimizer {}, the model's is {}; load_state without the optimizer takes its weights", from.path(),
               from.settings.optimizer, model.record.settings.optimizer);
        ModelSettings settings = model.record.settings;
        settings.alpha = from.settings.alpha;  // the adapter's scale is part of what it is
        replace_trained(model, settings, [&](TrainedModel& fresh) { fresh.restore(read_checkpoint(from, fresh.manifest()), optimizer); });
        ModelRecord record;
        {
          const std::lock_guard lock(mutex_);
          model.lost.clear();
          model.record.settings = settings;
          model.record.steps = model.trained->steps();
          model.record.open_gradients = false;
          model.record.changed = true;
          record = model.record;
        }
        keep(record);
        futures_.resolve(request, encode(record));
        return false;
      },
      /*heals=*/true);
}

// The fresh one stands beside the one that is there, which stays where anything fails. Where both have no room, and the one that is there
// has no gradients, it rests on disk meanwhile.
void TrainingService::replace_trained(Model& model, const ModelSettings& settings, const std::function<void(TrainedModel&)>& fill) {
  if (!model.trained) rest_idle_models(model);
  const std::string what = fmt::format("reading the weights of model '{}'", model.record.id);
  MemoryLedger::Claim room;
  TurnRoom reading;
  const auto make_room = [&] {
    room = model_room(model, settings);
    reading = reading_room(settings, what);
  };
  try {
    const TurnRoom stays = turn_room(&model, 0, what);  // others rest first
    make_room();
  } catch (const Error& e) {
    room.release();
    if (e.code() != ErrorCode::resource_exhausted || !model.trained || model.record.open_gradients || !model.early.empty()) throw;
    rest(model);
    make_room();
  }
  auto fresh = make_trained_model(*base_, settings);
  fill(*fresh);
  let_go(model);
  model.trained = std::move(fresh);
  model.room = std::move(room);
  model.forget_gradients();
}

void TrainingService::write_living(Model& model) {
  if (!model.trained || !model.lost.empty() || !model.record.changed) return;  // unchanged: its settings make it again, or what is on disk
  const std::filesystem::path folder = living_folder(model.record);
  std::filesystem::create_directories(folder);
  write_trained_model(folder, *model.trained, base_->opened.runtime->profile, true);
  const std::lock_guard lock(mutex_);
  model.record.changed = false;
  if (model.record.open_gradients)
    log_warning("gradients that no optim_step took are not kept over a restart", {{"model", model.record.id}});
  model.record.open_gradients = false;
  keep(model.record);
}

}  // namespace lockstep
