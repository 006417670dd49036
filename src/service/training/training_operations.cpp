// What operations do to a model, on the executor: batches in pieces, optimizer steps, checkpoints.
#include <algorithm>
#include <cctype>

#include "base/error.h"
#include "base/log.h"
#include "service/training/training_service.h"

namespace lockstep {
namespace {

// A batch on its way through the executor.
struct BatchRun {
  TrainingBatch batch;
  std::optional<PreparedBatch> prepared;
  std::size_t next = 0;  // datum
  bool begun = false;
  ForwardBackwardResult result;  // of a forward
};

// A name is a folder's, and a part of a path with slashes.
void check_checkpoint_name(const std::string& name) {
  constexpr std::size_t kLongest = 128;
  const auto plain = [](char c) { return std::isalnum(static_cast<unsigned char>(c)) || c == '-' || c == '_' || c == '.'; };
  if (!name.empty() && name.size() <= kLongest && name[0] != '.' && std::all_of(name.begin(), name.end(), plain)) return;
  std::string shown = name.substr(0, 80);
  for (char& c : shown)
    if (static_cast<unsigned char>(c) < ' ' || c == 127) c = '?';
  fail(ErrorCode::invalid_argument, "path is '{}', allowed is a name of 1 to {} letters, digits, '-', '_' and '.', which does not begin with '.'", shown, kLongest);
}

}  // namespace

TrainedModel& TrainingService::trained(Model& model) {
  if (model.trained) return *model.trained;
  model.trained = make_trained_model(*base_, model.record.settings);
  if (model.record.steps > 0 || std::filesystem::exists(living_folder(model.record))) {
    std::optional<LoadedCheckpoint> loaded = load_latest_checkpoint(living_folder(model.record), model.trained->manifest());
    if (!loaded) fail(ErrorCode::corrupt_file, "model '{}' is not on disk any more; load_state of a checkpoint goes on from there", model.record.id);
    model.trained->restore(std::move(loaded->checkpoint), true);
  }
  return *model.trained;
}

std::string TrainingService::forward_backward(const std::string& owner, const std::string& id, std::int64_t sequence, TrainingBatch batch, Encode<TrainingOutput> encode) {
  if (batch.loss.name == "custom") return forward_backward_custom(owner, id, sequence, std::move(batch), std::move(encode));
  auto run = std::make_shared<BatchRun>();
  run->batch = std::move(batch);
  const BatchLimits limits{base_->opened.loaded.model->vocabulary, base_->opened.runtime->max_positions};
  return submit(owner, id, sequence, [this, run, limits, encode = std::move(encode)](Model& model, const std::string& request) {
    TrainedModel& trained = this->trained(model);
    const bool forward = run->batch.forward_only;
    try {
      if (!run->prepared) {
        run->prepared = prepare_batch(run->batch, limits);
        for (TrainingDatum& datum : run->batch.data) datum.inputs.clear();
      }
      const std::vector<TrainSequence>& all = run->prepared->sequences;
      if (!run->begun && !forward) {
        {
          const std::lock_guard lock(mutex_);
          model.record.open_gradients = model.record.changed = true;
        }
        trained.begin(all.size(), run->prepared->loss);
      }
      run->begun = true;
      const std::size_t end = piece_end(all, run->next, options_.tokens_a_step);
      const std::vector<TrainSequence> piece(all.begin() + static_cast<std::ptrdiff_t>(run->next), all.begin() + static_cast<std::ptrdiff_t>(end));
      if (forward) {
        for (std::vector<float>& row : trained.score(piece)) run->result.logprobs.push_back(std::move(row));
      } else {
        std::vector<std::size_t> places;
        for (std::size_t s = run->next; s < end; ++s) places.push_back(s);
        trained.add(places, piece);
      }
      run->next = end;
      if (end < all.size()) return true;
      if (!forward) run->result = trained.finish();
    } catch (...) {
      if (run->begun && !forward) trained.drop();
      throw;
    }
    futures_.resolve(request, encode(training_output(*run->prepared, run->result)));
    return false;
  });
}

std::string TrainingService::optim_step(const std::string& owner, const std::string& id, std::int64_t sequence, const OptimizerRequest& wanted, Encode<OptimResult> encode) {
  return submit(owner, id, sequence, [this, wanted, encode = std::move(encode)](Model& model, const std::string& request) {
    const AdamParameters& a = wanted.adam;
    const auto require = [](bool right, const char* name, double value, const char* allowed) {
      if (!right) fail(ErrorCode::invalid_argument, "adam_params.{} is {}, allowed is {}", name, value, allowed);
    };
    require(a.learning_rate >= 0 && a.learning_rate <= 1e3, "learning_rate", a.learning_rate, "0 to 1000");
    require(a.beta1 >= 0 && a.beta1 < 1, "beta1", a.beta1, "0 to below 1");
    require(a.beta2 >= 0 && a.beta2 < 1, "beta2", a.beta2, "0 to below 1");
    require(a.eps >= 0 && a.eps <= 1, "eps", a.eps, "0 to 1");
    require(a.weight_decay >= 0 && a.weight_decay <= 1e3, "weight_decay", a.weight_decay, "0 to 1000");
    require(a.max_norm >= 0 && a.max_norm <= 1e30, "grad_clip_norm", a.max_norm, "0 (off) and up");
    TrainedModel& trained = this->trained(model);
    const OptimResult result = trained.optim_step(a);
    {
      const std::lock_guard lock(mutex_);
      model.record.steps = trained.steps();
      model.record.open_gradients = false;
      model.record.changed = true;
    }
    keep(model.record);
    futures_.resolve(request, encode(result));
    return false;
  });
}

CheckpointRecord TrainingService::write_checkpoint(Model& model, const SaveRequest& wanted) {
  check_checkpoint_name(wanted.name);
  CheckpointRecord record;
  record.model = model.record.id;
  record.owner = model.record.owner;
  record.kind = wanted.kind;
  record.name = wanted.name;
  record.settings = model.record.settings;
  record.optimizer = wanted.kind == "weights";
  record.user_metadata = wanted.user_metadata;
  record.created = unix_now();
  if (wanted.ttl_seconds) record.expires = record.created + *wanted.ttl_seconds;
  {
    const std::lock_guard lock(mutex_);
    if (checkpoints_.contains(record.path()) && !wanted.overwrite)
      fail(ErrorCode::already_exists, "the checkpoint {} exists already; overwrite=true replaces it", record.path());
  }
  TrainedModel& trained = this->trained(model);
  TrainingCheckpoint checkpoint = trained.checkpoint(record.optimizer);
  record.steps = checkpoint.step;
  const std::filesystem::path folder = checkpoint_folder(record);
  std::error_code error;
  std::filesystem::create_directories(folder, error);
  if (error) fail(ErrorCode::io, "the folder {} cannot be made: {}", folder.string(), error.message());
  save_checkpoint(folder, trained.manifest(), checkpoint, {.keep_last = 1});
  for (const auto& entry : std::filesystem::recursive_directory_iterator(folder, error))
    if (entry.is_regular_file()) record.bytes += static_cast<std::int64_t>(entry.file_size());
  const std::lock_guard lock(mutex_);
  store_->put("checkpoint", record.path(), to_json(record).dump());
  checkpoints_[record.path()] = record;
  return record;
}

std::string TrainingService::save(const std::string& owner, const std::string& id, std::int64_t sequence, const SaveRequest& wanted, Encode<CheckpointRecord> encode) {
  return submit(owner, id, sequence, [this, wanted, encode = std::move(encode)](Model& model, const std::string& request) {
    futures_.resolve(request, encode(write_checkpoint(model, wanted)));
    return false;
  });
}

std::string TrainingService::save_sampler(const std::string& owner, const std::string& id, std::int64_t sequence, bool inflight, Encode<SamplerRecord> encode) {
  return submit(owner, id, sequence, [this, owner, inflight, encode = std::move(encode)](Model& model, const std::string& request) {
    const SamplerWeights weights = trained(model).sampler_weights();
    SamplerRecord record;
    record.session = model.record.session;
    record.owner = owner;
    record.base_model = model.record.settings.base_model;
    record.settings = model.record.settings;
    if (inflight) {
      const std::lock_guard lock(mutex_);
      model.inflight = weights;
      record.inflight_model = model.record.id;
    }
    record.id = new_sampler(record, inflight ? SamplerWeights{} : weights);
    spill_samplers();
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
        if (const ModelSettings &a = from.settings, &b = model.record.settings; a.rank != b.rank || a.alpha != b.alpha || a.train_attn != b.train_attn || a.train_mlp != b.train_mlp || a.train_unembed != b.train_unembed)
          fail(ErrorCode::invalid_argument, "the checkpoint {} is of rank {}, alpha {}, the model of rank {}, alpha {}; allowed are equal ones, on equal layers", from.path(), a.rank, a.alpha, b.rank, b.alpha);
        auto fresh = make_trained_model(*base_, model.record.settings);
        std::optional<LoadedCheckpoint> loaded = load_latest_checkpoint(checkpoint_folder(from), fresh->manifest());
        if (!loaded) fail(ErrorCode::corrupt_file, "the checkpoint {} is not on disk any more", from.path());
        fresh->restore(std::move(loaded->checkpoint), optimizer);
        model.trained = std::move(fresh);
        ModelRecord record;
        {
          const std::lock_guard lock(mutex_);
          model.lost.clear();
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

void TrainingService::write_living(Model& model) {
  if (!model.trained || !model.lost.empty()) return;
  const std::filesystem::path folder = living_folder(model.record);
  std::filesystem::create_directories(folder);
  save_checkpoint(folder, model.trained->manifest(), model.trained->checkpoint(true), {.keep_last = 1});
  const std::lock_guard lock(mutex_);
  model.record.changed = false;
  if (model.record.open_gradients)
    log_warning("gradients that no optim_step took are not kept over a restart", {{"model", model.record.id}});
  model.record.open_gradients = false;
  keep(model.record);
}

}  // namespace lockstep
