// The use cases of a training API, whichever wire it speaks: sessions, models that clients train, samplers, checkpoints. Operations
// on a model run strictly in the order of their sequence numbers, whatever the order of their arrival; a repeated number is the
// same request. Each submission is answered at once with a request id (service/training/futures.h).
// Everything belongs to an owner; what is another's is as good as absent (not_found). Knows no JSON of a wire and no transport.
// Any thread, but for what says "executor".
//   TrainingService service(base, generation, options); const auto session = service.create_session(owner, {});
#pragma once
#include <atomic>
#include <map>
#include <mutex>
#include <unordered_map>

#include "base/folder_lock.h"
#include "service/custom_loss/custom_loss.h"
#include "service/training/futures.h"
#include "service/training/loss_inputs.h"
#include "service/training/sampling_request.h"
#include "service/training/trained_model.h"
#include "service/training/training_queue.h"
#include "service/training/training_records.h"

namespace lockstep {

struct TrainingServiceOptions {
  std::filesystem::path state = "lockstep-state";
  std::int64_t max_sessions = 10'000, max_models = 64, max_pending = 10'000;  // pending: operations of one model
  std::int64_t tokens_a_step = 2048;  // of one model, before others get their turn
  std::int64_t sampler_bytes = std::int64_t{2} << 30;  // of snapshots in memory; more go to disk
  std::int64_t reuse_bytes = std::int64_t{1} << 30;    // of forwards that a gradient may ask for again (train/kept_passes.h); 0: none
  bool custom_losses = true;  // that clients trace run here
};

struct OptimizerRequest {
  AdamParameters adam;
};

struct SaveRequest {
  std::string kind = "weights", name;
  bool overwrite = false;
  std::optional<double> ttl_seconds;
  TrainingJson user_metadata = TrainingJson::object();
};

class TrainingService {
 public:
  // Encodes what became of an operation for its client.
  template <class T>
  using Encode = std::function<Outcome(const T&)>;

  // `generation` stands on base->executor and base->opened.runtime.
  TrainingService(std::shared_ptr<TrainingBase> base, std::shared_ptr<GenerationService> generation, const TrainingServiceOptions& options);
  ~TrainingService();  // stop()
  TrainingService(const TrainingService&) = delete;
  TrainingService& operator=(const TrainingService&) = delete;

  // What is submitted is done, living models are written to disk, nothing more is taken. Again: nothing happens.
  void stop();

  const TrainingBase& base() const { return *base_; }
  GenerationService& generation() const { return *generation_; }
  Futures& futures() { return futures_; }
  const KeptPasses::Statistics& reuse() const { return base_->kept->statistics(); }

  // --- sessions
  std::string create_session(const std::string& owner, SessionRecord wanted);
  void heartbeat(const std::string& owner, const std::string& session);
  void finish_session(const std::string& owner, const std::string& session, const std::string& status, const std::string& detail);
  std::vector<SessionRecord> sessions(const std::string& owner);
  SessionRecord session(const std::string& owner, const std::string& id);

  // --- models. `from` not empty: a checkpoint's path; settings then come from it, but for what is told beside it.
  struct CreateModel {
    std::string session;
    std::int64_t number = 0;
    ModelSettings settings;
    std::string from;
    bool with_optimizer = false;
  };
  std::string create_model(const std::string& owner, const CreateModel& wanted, Encode<ModelRecord> encode);
  ModelRecord model(const std::string& owner, const std::string& id);
  std::vector<ModelRecord> models(const std::string& owner);
  std::string unload_model(const std::string& owner, const std::string& id, Encode<ModelRecord> encode);

  // --- operations of a model, in order of `sequence`
  // An error of a submission itself (a body that cannot be read) takes its number too: `prepare` runs when the turn comes.
  std::string forward_backward(const std::string& owner, const std::string& model, std::int64_t sequence, TrainingBatch batch, Encode<TrainingOutput> encode);
  // A traced loss of a session's clients: {"name", "inputs", "graph"}; loss "custom" with its id as loss_id then names it.
  std::string create_custom_loss(const std::string& owner, const std::string& session, std::int64_t number, const TrainingJson& document, Encode<std::string> encode);
  bool custom_losses() const { return options_.custom_losses; }
  std::string optim_step(const std::string& owner, const std::string& model, std::int64_t sequence, const OptimizerRequest& request, Encode<OptimResult> encode);
  std::string save(const std::string& owner, const std::string& model, std::int64_t sequence, const SaveRequest& request, Encode<CheckpointRecord> encode);
  // A sampler of the model as it is at that moment; `inflight`: one that follows later ones.
  std::string save_sampler(const std::string& owner, const std::string& model, std::int64_t sequence, bool inflight, Encode<SamplerRecord> encode);
  std::string load(const std::string& owner, const std::string& model, std::int64_t sequence, const std::string& path, bool optimizer, Encode<ModelRecord> encode);
  // A number whose operation cannot even be read: it fails in its turn.
  std::string refuse(const std::string& owner, const std::string& model, std::int64_t sequence, const Error& error);

  // --- samplers
  std::string create_sampler(const std::string& owner, const std::string& session, std::int64_t number, const std::string& base_model, const std::string& path);
  SamplerRecord sampler(const std::string& owner, const std::string& id);
  std::vector<SamplerRecord> samplers(const std::string& owner, const std::string& session);
  std::int64_t join_sampler(const std::string& owner, const std::string& id);  // 1, 2, ...
  std::string sample(const std::string& owner, const std::string& sampler, std::int64_t sequence, const SamplingRequest& request, Encode<SamplingResult> encode);
  // The weights of a sampler, for other ways to sample.
  SamplerWeights weights_of_sampler(const std::string& owner, const std::string& id);
  SamplerWeights weights_of_checkpoint(const std::string& owner, const std::string& path);

  // --- checkpoints
  std::vector<CheckpointRecord> checkpoints(const std::string& owner, const std::string& model = {});
  CheckpointRecord checkpoint(const std::string& owner, const std::string& path);
  void remove_checkpoint(const std::string& owner, const std::string& path);
  // Errors not_found.
  void change_checkpoint(const std::string& owner, const std::string& path, const std::function<void(CheckpointRecord&)>& change);

  // Whether clients may call the base by this name.
  bool is_base(const std::string& name) const;

 private:
  struct Model {
    ModelRecord record;
    std::unique_ptr<TrainedModel> trained;  // executor; null: not made yet, or on disk
    std::string lost;                       // not empty: why no operation but load is taken
    struct Waiting {
      std::string request;
      TrainingQueue::Step step;
    };
    std::map<std::int64_t, Waiting> waiting;            // by sequence number: their turn has not come
    std::unordered_map<std::int64_t, std::string> requests;  // sequence number -> request id
    std::int64_t next = 1;                              // sequence number whose turn it is
    double gap_since = 0;
    SamplerWeights inflight;                            // the newest, of its inflight samplers
  };
  struct Sampler {
    SamplerRecord record;
    SamplerWeights weights;        // null: on disk, or the base's
    std::uint64_t used = 0;
    std::int64_t joined = 0;
    std::unordered_map<std::int64_t, std::string> requests;
  };
  struct OwnedLoss {
    std::string owner, session;
    std::shared_ptr<const CustomLoss> loss;
  };
  // One step of an operation, on the executor: true: again.
  using Work = std::function<bool(Model& model, const std::string& request)>;

  std::shared_ptr<Model> find_model(const std::string& owner, const std::string& id);
  std::string submit(const std::string& owner, const std::string& model, std::int64_t sequence, Work work, bool heals = false);
  void run_ready(const std::shared_ptr<Model>& model);
  TrainedModel& trained(Model& model);  // executor: made, or read from disk
  void keep(const ModelRecord& record);
  std::string forward_backward_custom(const std::string& owner, const std::string& model, std::int64_t sequence, TrainingBatch batch, Encode<TrainingOutput> encode);
  std::shared_ptr<const CustomLoss> custom_loss(const std::string& owner, const std::string& session, const LossRequest& wanted);
  void load_custom_losses();
  void check_gaps(const std::string& session);
  void load_records();
  void write_living(Model& model);
  std::filesystem::path living_folder(const ModelRecord& record) const;
  std::filesystem::path checkpoint_folder(const CheckpointRecord& record) const;
  std::filesystem::path sampler_folder(const SamplerRecord& record) const;
  // `path`: tinker://MODEL/KIND/NAME, or the bare name of one of `kind`: the newest, of `model` before others'.
  CheckpointRecord checkpoint_at(const std::string& owner, const std::string& path, const std::string& model = {}, const std::string& kind = "weights");
  CheckpointRecord write_checkpoint(Model& model, const SaveRequest& request);  // executor
  SamplerWeights read_weights(const std::filesystem::path& folder, const ModelSettings& settings);  // executor
  void spill_samplers();  // executor
  void expire_checkpoints();
  std::string new_sampler(SamplerRecord record, SamplerWeights weights);
  void begin_sample(const std::string& request, const SamplerWeights& weights, const SamplingRequest& wanted, Encode<SamplingResult> encode);

  std::shared_ptr<TrainingBase> base_;
  std::shared_ptr<GenerationService> generation_;
  const TrainingServiceOptions options_;
  std::shared_ptr<TrainingStore> store_;
  std::unique_ptr<FolderLock> lock_;
  Futures futures_;
  std::shared_ptr<TrainingQueue> queue_;

  std::mutex mutex_;  // what follows
  std::map<std::string, SessionRecord> sessions_;
  std::map<std::pair<std::string, std::string>, std::string> session_by_key_;  // owner, idempotency key
  std::map<std::string, std::shared_ptr<Model>> models_;
  std::map<std::pair<std::string, std::int64_t>, std::string> creations_;      // session, number -> request id
  std::map<std::string, std::shared_ptr<Sampler>> samplers_;
  std::map<std::pair<std::string, std::int64_t>, std::string> sampler_by_number_;  // session, number
  std::map<std::string, CheckpointRecord> checkpoints_;                        // by path
  std::map<std::string, OwnedLoss> custom_losses_;                                   // by id
  std::map<std::pair<std::string, std::int64_t>, std::string> custom_loss_by_number_;  // session, number -> request id
  std::uint64_t sampler_clock_ = 0;
  bool stopping_ = false;
};

}  // namespace lockstep
