// The use cases of a training API, whichever wire it speaks: sessions, models that clients train, samplers, checkpoints. Operations
// on a model run strictly in the order of their sequence numbers, whatever the order of their arrival; a repeated number is the
// same request. Each submission is answered at once with a request id (host/futures.h).
// Everything belongs to an owner; what is another's is as good as absent (not_found). Knows no JSON of a wire and no transport.
// Any thread, but for what says "executor".
//   TrainingService service(base, generation, options); const auto session = service.create_session(owner, {});
#pragma once
#include <atomic>
#include <chrono>
#include <map>
#include <set>
#include <mutex>
#include <unordered_map>

#include "base/folder_lock.h"
#include "losses/custom_loss.h"
#include "host/acknowledged_numbers.h"
#include "host/future_feed.h"
#include "host/futures.h"
#include "host/key_limit.h"
#include "host/loss_inputs.h"
#include "host/recent_texts.h"
#include "host/sampling_request.h"
#include "host/sessions.h"
#include "host/control_plane.h"
#include "host/model_memory.h"
#include "host/trained_model.h"
#include "host/training_queue.h"
#include "host/training_records.h"
#include "host/weight_cache.h"
#include "host/training_statistics.h"
#include "host/turn_size.h"

namespace lockstep {

struct TrainingServiceOptions {
  std::filesystem::path state = "lockstep-state";
  std::int64_t max_sessions = 10'000, max_pending = 10'000;  // pending: operations of one model
  std::int64_t max_samplers = 100'000;
  // A session that was not heard from for so long goes, and so does a snapshot without a name that was not sampled (retention.cpp).
  double session_seconds = 30 * 86400.0, sampler_seconds = 3 * 86400.0;
  std::int64_t max_models = 64;         // in memory; beyond, the least used go to disk and come back
  std::int64_t max_kept_models = 4096;  // on disk too
  // Numbers of operations whose request is known when they come again, and models that could not be made of which is known why: the newest.
  std::int64_t max_numbers = 100'000, max_unmade = 1000;
  std::int64_t max_checkpoints = 100'000;
  std::int64_t checkpoint_bytes = 0;           // of all their files, and of promoted models'; 0: half of the disk that `state` is on
  std::int64_t metadata_bytes = 16 << 10;      // of the user_metadata, and of the tags, of one session, model or checkpoint
  // Of each limit above but max_pending, and of the control plane's records, one owner may take so many percent: the rest is for others.
  std::int64_t key_share = 50;
  std::int64_t tokens_a_step = 2048;  // of one model, before others get their turn
  double turn_seconds = 0.2;  // while nobody waits a turn takes more, up to so long (host/turn_size.h); 0: never
  bool offload_optimizer = false;  // the trainers' moments (and masters beside narrower weights) are in files below `state`
  bool share_passes = true;  // turns that are not full take small batches of other adapters along; false: slower, the same bits
  std::int64_t sampler_bytes = std::int64_t{2} << 30;  // of snapshots in memory; more go to disk. As much again of sampled checkpoints
  std::int64_t reuse_bytes = std::int64_t{1} << 30;    // of forwards that a gradient may ask for again (train/kept_passes.h); 0: none
  bool custom_losses = true;  // that clients trace run here
};

// What gradients are divided by: tokens or sequences that a gradient came from, of all forward_backward calls since the last step.
enum class GradientDivisor { none, loss_tokens, sequences };
enum class GradientNorms { off, basic, detailed };

struct OptimizerRequest {
  AdamParameters adam;  // of dimuon: learning_rate, beta1, max_norm
  std::string optimizer = "adamw";  // must be the model's
  GradientDivisor divisor = GradientDivisor::none;
  GradientNorms norms = GradientNorms::off;
};

struct OptimizerOutput {
  std::uint64_t version = 0;
  std::vector<std::pair<std::string, double>> metrics;
};

struct SaveRequest {
  std::string kind = "weights", name;
  bool overwrite = false;
  std::optional<double> ttl_seconds;
  TrainingJson user_metadata = TrainingJson::object();
  // Of a sampler's: base, delta, merged_base (an adapter folded into whole weights); empty: not said.
  std::string type;
  std::string precision;  // of merged_base: source (the base's, also where it is empty), bf16
};

// A copy of a checkpoint, in a session's model slot or (session empty) in a run of its own.
struct CopyRequest {
  std::string source, session, idempotency_key;
  std::string project;  // of a run of its own
  std::int64_t number = 0;
  std::optional<double> ttl_seconds;
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
  const std::shared_ptr<GenerationService>& shared_generation() const { return generation_; }
  Futures& futures() { return futures_; }
  ControlPlane& control() { return control_; }
  const TrainingStatistics& statistics() const { return statistics_; }
  FutureFeed& feed() { return feed_; }
  const KeptPasses::Statistics& reuse() const { return base_->kept->statistics(); }

  // --- sessions, whose beginning and heartbeats also look for what nobody came back for
  Sessions& sessions() { return sessions_; }
  std::string create_session(const std::string& owner, const SessionRecord& wanted);
  void heartbeat(const std::string& owner, const std::string& session);

  // --- models. Of a serverless session (ts-...) a model is a run: its id is run-<32 hex>:train:N, but for base_only ones.
  // `from` not empty: a checkpoint's path; settings then come from it, but for what is told beside it.
  struct CreateModel {
    std::string session;
    std::int64_t number = 0;
    ModelSettings settings;
    std::string from;
    bool with_optimizer = false;
  };
  static std::string model_id(const CreateModel& wanted);
  std::string create_model(const std::string& owner, const CreateModel& wanted, Encode<ModelRecord> encode);
  ModelRecord model(const std::string& owner, const std::string& id);
  std::vector<ModelRecord> models(const std::string& owner);
  std::string unload_model(const std::string& owner, const std::string& id, Encode<ModelRecord> encode);
  // Unloads all models of a session; nobody is told.
  void drop_models(const std::string& owner, const std::string& session);

  // --- operations of a model, in order of `sequence`
  // An error of a submission itself (a body that cannot be read) takes its number too: `prepare` runs when the turn comes.
  std::string forward_backward(const std::string& owner, const std::string& model, std::int64_t sequence, TrainingBatch batch, Encode<TrainingOutput> encode);
  std::string optim_step(const std::string& owner, const std::string& model, std::int64_t sequence, const OptimizerRequest& request, Encode<OptimizerOutput> encode);
  // A traced loss of a session's clients: {"name", "inputs", "graph"}; loss "custom" with its id as loss_id then names it.
  std::string create_custom_loss(const std::string& owner, const std::string& session, std::int64_t number, const TrainingJson& document, Encode<std::string> encode);
  bool custom_losses() const { return options_.custom_losses; }
  // Error invalid_argument: `field` is larger than what is kept of a client's own data.
  void check_metadata(const std::string& field, const KeptJson& value) const;
  std::string save(const std::string& owner, const std::string& model, std::int64_t sequence, const SaveRequest& request, Encode<CheckpointRecord> encode);
  // A sampler of the model as it is at that moment; `inflight`: one that follows later ones.
  std::string save_sampler(const std::string& owner, const std::string& model, std::int64_t sequence, bool inflight, Encode<SamplerRecord> encode);
  std::string load(const std::string& owner, const std::string& model, std::int64_t sequence, const std::string& path, bool optimizer, Encode<ModelRecord> encode);
  // A forward that tells the `top_k` likeliest tokens of every row too, 1 to SamplingParameters::kMaxTopLogprobs.
  std::string forward_top_k(const std::string& owner, const std::string& model, std::int64_t sequence, TrainingBatch batch, std::int64_t top_k, Encode<TrainingOutput> encode);
  // An adapter's weights, and nothing else, into a model of the same rank: a promoted adapter's name, or a checkpoint of an adapter.
  // Matrices that it lacks begin anew.
  std::string load_adapter(const std::string& owner, const std::string& model, std::int64_t sequence, const std::string& from, Encode<ModelRecord> encode);
  // A number whose operation cannot even be read: it fails in its turn.
  std::string refuse(const std::string& owner, const std::string& model, std::int64_t sequence, const Error& error);

  // --- samplers
  std::string create_sampler(const std::string& owner, const std::string& session, std::int64_t number, const std::string& base_model, const std::string& path);
  SamplerRecord sampler(const std::string& owner, const std::string& id);
  std::vector<SamplerRecord> samplers(const std::string& owner, const std::string& session);
  std::int64_t join_sampler(const std::string& owner, const std::string& id);  // 1, 2, ...
  std::string sample(const std::string& owner, const std::string& sampler, std::int64_t sequence, const SamplingRequest& request, Encode<SamplingResult> encode);
  // Ends a sample that is under way; its request fails. What is finished, or is no sample of that owner, stays as it is.
  void cancel_sample(const std::string& owner, const std::string& request);
  // The stream of finished samples (feed()) of a sampler's clone: clone = sequence / 10^9.
  std::string feed_of_sampler(const std::string& owner, const std::string& sampler, std::int64_t clone);
  // The weights of a sampler, for other ways to sample.
  SamplerWeights weights_of_sampler(const std::string& owner, const std::string& id);
  SamplerWeights weights_of_checkpoint(const std::string& owner, const std::string& path);
  SamplerWeights weights_of_promoted(const PromotedModel& model);

  // --- checkpoints
  std::vector<CheckpointRecord> checkpoints(const std::string& owner, const std::string& model = {});
  // `path`: tinker://MODEL/KIND/NAME; ACCOUNT/RUN/NAME; cross_job://JOB/NAME; the bare name of one of `kind`: the newest.
  CheckpointRecord checkpoint(const std::string& owner, const std::string& path, const std::string& kind = "weights");
  // Of the models of a job's sessions, oldest first; "local": of sessions that were made through none.
  std::vector<CheckpointRecord> checkpoints_of_job(const std::string& owner, const std::string& job);
  // A sampler's checkpoint as others read it: a Hugging Face folder in fp32 (merged_base: as it is), of an adapter a PEFT folder.
  // Returns the digest of the numerics profile that it was written under; empty: not known.
  std::string export_checkpoint(const CheckpointRecord& record, const std::filesystem::path& folder);
  void remove_checkpoint(const std::string& owner, const std::string& path);
  std::string copy_checkpoint(const std::string& owner, const CopyRequest& wanted);  // its path
  // Where the files of an external checkpoint are. Error invalid_argument for one of another kind.
  std::filesystem::path external_folder(const std::string& owner, const std::string& path);
  // Before a checkpoint of `bytes` is written; of one that it replaces, its files count no more. Error resource_exhausted.
  // `metadata`: bytes of it, of the model too.
  void check_checkpoint_room(const std::string& owner, const std::string& path, std::int64_t bytes, std::int64_t metadata = 0);
  // Errors not_found.
  void change_checkpoint(const std::string& owner, const std::string& path, const std::function<void(CheckpointRecord&)>& change);

  // Whether clients may call the base by this name.
  bool is_base(const std::string& name) const;
  // Error not_found, with the names that there are.
  void check_base(const std::string& name) const;

 private:
  using Clock = std::chrono::steady_clock;
  class Operation;  // host/operation.h
  class BatchOperation;
  struct Model {
    ModelRecord record;
    std::unique_ptr<TrainedModel> trained;  // executor; null: not made yet, or on disk
    std::string lost;                       // not empty: why no operation but load is taken
    std::string unmade;                     // not empty: why its creation failed; it is none, and nothing is taken
    std::map<std::int64_t, std::shared_ptr<Operation>> waiting;  // by sequence number: their turn has not come
    std::vector<std::shared_ptr<BatchOperation>> early;          // executor; those of them that have run, or begun to
    std::int64_t next = 1;                              // sequence number whose turn it is
    std::int64_t acknowledged = 0;                      // the highest that its client was answered for
    double gap_since = 0;
    TrainingActivity activity;
    SamplerWeights inflight;                            // the newest, of its inflight samplers
    // executor: what the gradients came from that no step has taken
    std::int64_t gradient_tokens = 0, gradient_sequences = 0;
    void forget_gradients() { gradient_tokens = gradient_sequences = 0; }
    TurnSize turn;  // executor: how its batches are cut
    MemoryLedger::Claim room, gradient_room;  // executor: of the trained model; of gradients that no step has taken
    std::int64_t most_rows = 0;               // executor: of its turns since it is in memory
  };
  struct Sampler {
    SamplerRecord record;
    SamplerWeights weights;        // null: on disk, or the base's
    std::uint64_t used = 0;  // order
    Clock::time_point used_at = Clock::now();
    std::int64_t joined = 0;
  };
  struct OwnedLoss {
    std::string owner, session;
    std::shared_ptr<const CustomLoss> loss;
  };
  // One step of an operation, on the executor: true: again.
  using Work = std::function<bool(Model& model, const std::string& request)>;

  std::shared_ptr<Model> find_model(const std::string& owner, const std::string& id);
  std::string submit(const std::string& owner, const std::string& model, std::int64_t sequence, Work work, bool heals = false);
  // Memory for as long as something runs: of the room that is always there for turns, and beyond it of what is free. Executor.
  class TurnRoom {
   public:
    TurnRoom() = default;
    TurnRoom(TurnRoom&& other) noexcept { *this = std::move(other); }
    TurnRoom& operator=(TurnRoom&& other) noexcept;
    ~TurnRoom() { leave(); }
    void leave() noexcept;

   private:
    friend class TrainingService;
    TrainingService* service_ = nullptr;
    const Model* model_ = nullptr;  // it stays in memory meanwhile
    std::int64_t bytes_ = 0;
  };
  using MakeOperation = std::function<std::shared_ptr<Operation>(const std::shared_ptr<Model>& model, const std::string& request)>;
  std::string place(const std::string& owner, const std::string& model, std::int64_t sequence, const MakeOperation& make);
  void run_ready(const std::shared_ptr<Model>& model);
  void mark_gradients(Model& model);  // executor
  void undo_stray(Model& model);  // before a gradient counts: what may be undone later must not stand beside it
  void drop_gradients(Model& model);
  void undo_early(Model& model);      // executor
  void forget_waiting(Model& model, const std::string& why);
  // executor: tokens of the model's next turn
  std::int64_t turn_tokens(const Model& model) const { return model.turn.tokens(options_.tokens_a_step, queue_->others_wait()); }
  KeyLimit limit_of(std::int64_t most) const { return {most, options_.key_share}; }
  // Of all user_metadata and tags, `more` bytes of an owner. mutex_ is held; errors resource_exhausted.
  void check_metadata_room(const std::string& owner, std::int64_t more) const;
  void check_key_models(const std::string& owner) const;  // before one more; mutex_ is held; errors resource_exhausted
  // Before gradients, or early work, hold the model in memory. Error resource_exhausted: its owner's share is held.
  void check_held(const Model& model);
  // Error invalid_argument: written under another numerics profile than this server's.
  void check_profile_of(const CheckpointRecord& record) const;
  TrainedModel& trained(Model& model);  // executor: made, or read from disk
  void keep(const ModelRecord& record);
  std::string forward_backward_custom(const std::string& owner, const std::string& model, std::int64_t sequence, TrainingBatch batch, Encode<TrainingOutput> encode);
  std::shared_ptr<const CustomLoss> custom_loss(const std::string& owner, const std::string& session, const LossRequest& wanted);
  void load_custom_losses();
  void check_gaps(const std::string& session);
  // Errors not_found. They may be removed at any time (retention.cpp): who looked one up holds it, or the lock.
  std::shared_ptr<Sampler> find_sampler(const std::string& owner, const std::string& id);
  void drop_model(const ModelRecord& model);  // unloads it; nobody is told
  // retention.cpp
  void sweep();
  bool remove_forgotten();  // executor
  bool is_forgotten(const std::string& session) const { return sessions_.is_silent(session, options_.session_seconds); }
  void remove_session(const SessionRecord& session);  // mutex_ is held
  void load_records();
  void write_living(Model& model);
  static std::string folder_of_id(const std::string& id);  // a model's or sampler's, as a folder's name
  std::filesystem::path living_folder(const ModelRecord& record) const;
  std::filesystem::path checkpoint_folder(const CheckpointRecord& record) const;
  std::filesystem::path sampler_folder(const SamplerRecord& record) const;
  std::string job_of(const CheckpointRecord& record) const;  // mutex_ is held
  // As checkpoint(); of `model` before others'.
  CheckpointRecord checkpoint_at(const std::string& owner, const std::string& path, const std::string& model = {}, const std::string& kind = "weights");
  CheckpointRecord write_checkpoint(Model& model, const SaveRequest& request);  // executor
  void check_merge(const ModelSettings& settings, const std::string& precision) const;
  void write_merged(const ModelSettings& settings, const WeightImages& adapter, const std::string& precision, const std::filesystem::path& folder);
  // A model with an adapter takes another adapter's numbers; executor.
  void take_adapter(Model& model, const AdapterLayout& layout, const WeightImages& images);
  // How whole weights are written for others: with the base's tokenizer where it has one.
  SaveOptions folder_options(DType dtype) const;
  void write_external(const CheckpointRecord& record, const WeightImages& masters);
  // Of "tinker://adapters/external_weights/NAME" (GenerationService::adapters).
  std::optional<CheckpointRecord> named_adapter(const std::string& path) const;
  TrainingCheckpoint read_checkpoint(const CheckpointRecord& from, const Manifest& manifest);  // executor
  SamplerWeights weights_at(const CheckpointRecord& from);                                     // executor
  void rest_idle_models(const Model& wanted);                                                  // executor
  // training_memory.cpp; executor, but for the first two and writing_room. Errors resource_exhausted, from the ledger, with what would free it.
  static std::int64_t most_result_bytes(const TrainingBase& base);
  void claim_fixed_room();
  const ModelMemory& memory_of(const ModelSettings& settings);  // zeros without a limit
  // Claims grow where there is room, or what can come again makes some.
  void grow(MemoryLedger::Claim& claim, std::int64_t bytes, const std::string& what);
  MemoryLedger::Claim room_for(const char* category, const std::string& owner, std::int64_t bytes, const std::string& what);
  MemoryLedger::Claim model_room(const Model& model, const ModelSettings& settings);
  MemoryLedger::Claim writing_room(const ModelSettings& settings, const std::string& what);  // all images at once; another thread's
  TurnRoom turn_room(const Model* model, std::int64_t bytes, const std::string& what);
  TurnRoom reading_room(const ModelSettings& settings, const std::string& what);
  // Of a piece's turn. Fewer sequences, where so many do not fit; the error is of one alone.
  TurnRoom admit_piece(Model& model, const std::vector<TrainSequence>& all, std::size_t begin, std::size_t& end, bool gradient);
  // Before TrainedModel::begin.
  void admit_gradient(Model& model, std::size_t piece, std::size_t sequences);
  SamplerWeights sampled_weights(const std::string& owner, const ModelSettings& settings, const std::string& what, const std::function<SamplerWeights()>& read);
  SamplerWeights hold_room(SamplerWeights weights, MemoryLedger::Claim&& room);
  bool free_some();
  std::vector<std::shared_ptr<Model>> idle_models();  // those that may go to disk, the least used first
  bool rest_one_model();
  void replace_trained(Model& model, const ModelSettings& settings, const std::function<void(TrainedModel&)>& fill);
  void rest(Model& model);    // on disk
  void let_go(Model& model);  // of memory; its state stays where it is on disk
  std::int64_t sampler_bytes_held();
  SamplerWeights read_weights(const std::filesystem::path& folder, const ModelSettings& settings);  // executor
  void spill_samplers(std::int64_t most);  // executor; until they hold no more bytes than that
  void spill_sampler(const std::string& id);  // executor
  void write_sampler(Sampler& sampler, const SamplerWeights& weights, const SamplerRecord& record);  // executor
  void spill_samplers() { spill_samplers(options_.sampler_bytes); }
  void expire_checkpoints();
  std::string new_sampler(SamplerRecord record, SamplerWeights weights);
  void begin_sample(const std::string& owner, const std::string& request, const SamplerWeights& weights, const SamplingRequest& wanted, Encode<SamplingResult> encode);

  // Of a merged_base checkpoint, below its folder.
  static constexpr const char* kMergedFolder = "model";

  std::shared_ptr<TrainingBase> base_;
  std::shared_ptr<GenerationService> generation_;
  const TrainingServiceOptions options_;
  std::shared_ptr<TrainingStore> store_;
  std::unique_ptr<FolderLock> lock_;
  AcknowledgedNumbers numbers_;
  std::shared_ptr<Deadlines> deadlines_ = std::make_shared<Deadlines>();
  FutureFeed feed_;
  Futures futures_;
  Sessions sessions_;
  ControlPlane control_;
  WeightCache cache_;
  TrainingStatistics statistics_;
  std::shared_ptr<TrainingQueue> queue_;
  // Executor.
  std::unique_ptr<ModelMemoryPlanner> planner_;  // null: the ledger has no limit
  static constexpr std::int64_t kMostMetadata = std::int64_t{256} << 20;
  std::int64_t metadata_room_ = kMostMetadata;
  bool limited_ = false;
  MemoryLedger::Claim writing_, records_, results_, turn_reserve_, turn_extra_, base_room_;
  std::int64_t models_bytes_ = 0;            // that were free when the server began
  std::int64_t turn_used_ = 0, base_rows_ = 0;
  std::vector<const Model*> busy_;           // by the rooms of what runs

  std::mutex mutex_;  // what follows
  std::map<std::string, std::shared_ptr<Model>> models_;
  RecentTexts numbers_seen_;  // scope (a model, a sampler, "create SESSION", "loss SESSION"), number -> request id
  RecentTexts unmade_;        // model -> why it could not be made
  std::map<std::string, std::shared_ptr<Sampler>> samplers_;
  std::map<std::pair<std::string, std::int64_t>, std::string> sampler_by_number_;  // session, number
  std::map<std::string, CheckpointRecord> checkpoints_;                        // by path
  RecentTexts copies_;        // owner and idempotency key -> path
  std::map<std::string, std::vector<std::uint64_t>> samples_;                  // under way: request id -> generations
  std::map<std::string, OwnedLoss> custom_losses_;                                   // by id
  std::uint64_t sampler_clock_ = 0;
  Clock::time_point swept_ = Clock::now();
  std::set<std::string> unloading_;                           // models of forgotten sessions
  bool stopping_ = false;
};

}  // namespace lockstep
