"""The names that headers' lines of use take for granted, with their types: a header a line (usage_lines.py)."""

NAMES = """\
api/body_budget.h: std::shared_ptr<BodyBudget> budget, std::string owner, std::size_t content_length, std::size_t more
api/errors.h: std::shared_ptr<Responder> responder, Any error
api/exchange.h: Api& api, ApiRequest request, std::shared_ptr<Responder> responder, std::string body
api/fireworks/completion_writer.h: const Tokenizer& tokenizer, std::string request_id
api/fireworks/deployment_routes.h: Routes& routes, std::shared_ptr<LocalDeployments> records, std::shared_ptr<FleetPort> fleet, std::shared_ptr<Deployments> models
api/fireworks/fleet_routes.h: Routes& routes, Any fleet
api/fireworks/fleet_waiter.h: std::shared_ptr<FleetPort> fleet, std::shared_ptr<Responder> responder, std::vector<FleetMember> members
api/fireworks/hot_load_ledger.h: std::shared_ptr<HostedDeployments> records, std::string owner, std::string name, FleetProgress progress
api/fireworks/resource_names.h: ApiRequest request
api/json_fields.h: std::int64_t n, bool stream, nlohmann::ordered_json json
api/openai/alias_gate.h: AliasGate& gate, std::vector<TrafficShare> shares, nlohmann::ordered_json json, std::string key, std::shared_ptr<Deployments> deployments
api/openai/answer.h: ChoiceDelta delta
api/openai/answer_parser.h: std::shared_ptr<AnswerParser> parser, ChoiceDelta delta
api/openai/draft_fields.h: JsonFields& fields, DraftOrder drafts, Any json, CompletionOrder order
api/openai/forced_tool_parser.h: std::string name_or_empty, std::string text, ChoiceDelta delta
api/openai/keep_field.h: std::shared_ptr<GenerationService> service, std::string owner
api/openai/openai_api.h: std::shared_ptr<GenerationService> service
api/openai/requested_model.h: std::string body, TrafficTable& traffic
api/openai/response_answer.h: std::shared_ptr<GenerationService> service, ApiRequest request, std::shared_ptr<Responder> responder
api/openai/sampling_fields.h: JsonFields& fields, Any json, Any prompts
api/openai/service_tier.h: JsonFields& fields, std::string tier, GenerationService& service, std::string key, nlohmann::ordered_json json
api/page/device_route.h: Routes& routes, std::shared_ptr<GenerationService> service, std::shared_ptr<Executor> executor, std::shared_ptr<TrainingService> trainers
api/page/page_routes.h: Routes& routes
api/rate_limits.h: const ApiKeys& keys, std::string key, std::int64_t tokens
api/request_pool.h: RequestPool& pool, ApiRequest request, std::shared_ptr<Responder> responder
api/sampling_values.h: SamplingParameters s, nlohmann::ordered_json json
api/server_state.h: std::shared_ptr<ServerState> state, double seconds, PrometheusText text
api/tinker/body_head.h: std::string body, TrainingService& service, std::string owner
api/tinker/prompt_targets.h: nlohmann::ordered_json json, std::vector<std::int32_t> prompt, std::int64_t max_positions
api/tinker/proto_reader.h: Any source, std::string text
api/tinker/zstd_body.h: ApiRequest request, std::string_view piece
api/worker.h: std::shared_ptr<Responder> responder, Any answer, Any busy
base/byte_record.h: std::vector<float> floats
base/byte_source.h: std::string body, std::string_view piece
base/checked_file.h: std::filesystem::path path, std::vector<float> values, std::int64_t bytes
base/file.h: std::filesystem::path path, const void* nothing
base/folder_entries.h: std::filesystem::path folder, Any use
base/give_way.h: const char* data, std::size_t bytes, Sha256& hash
base/json_members.h: nlohmann::ordered_json object, nlohmann::ordered_json standard, nlohmann::ordered_json given
base/kept_tokens.h: std::vector<std::int32_t> ids, std::int64_t vocabulary
base/philox.h: std::uint64_t seed
checkpoint/computed_tensors.h: const Model& model, const ModelReader& reader, Backend& backend, const Profile& profile
checkpoint/model_export.h: std::shared_ptr<const Model> model, WeightImages masters
checkpoint/model_reader.h: Runtime& runtime
checkpoint/reading_memory.h: std::int64_t weights, const Model& model, int threads, Any check_memory
checkpoint/run_directory.h: nlohmann::ordered_json config
checkpoint/tensor_file.h: const TensorFile& file, std::vector<float> values
cli/command_kinds.h: Any push_command, Any pull_command, std::vector<std::string> arguments
cli/deployment_opener.h: RuntimeSettings settings, std::shared_ptr<Executor> executor, Any ledger, Deployments& deployments
cli/doctor_lines.h: const std::vector<Finding>& findings
cli/doctor_ranks.h: const RanksAsked& asked
cli/option.h: OptionTable& table, std::string channel
cli/toml.h: std::string text, OptionRows& rows
engine/adjustments.h: SamplingParameters sampling, std::vector<std::int32_t> prompt, std::int32_t token, std::vector<std::int32_t> last_tokens
engine/constraint.h: Request request, Any grammar
engine/drafts/draft_source.h: std::shared_ptr<DraftSource> source, std::vector<std::int32_t> tokens, Any n, Any out
engine/drafts/drafter.h: const EngineOptions& options, std::int64_t vocabulary, Sequence& s, Request& request, std::int64_t room, std::int64_t rows, std::int64_t guessed, std::int64_t right
engine/drafts/drafting.h: Sequence& s
engine/drafts/mtp_source.h: Any material, std::vector<std::int32_t> tokens, std::vector<std::int32_t> out
engine/drafts/ngram_source.h: Any material, std::vector<std::int32_t> tokens, std::vector<std::int32_t> out
engine/drafts/prediction_source.h: Any material, std::vector<std::int32_t> tokens, std::vector<std::int32_t> out
engine/drafts/scripted_source.h: Any material, std::vector<std::int32_t> tokens, std::vector<std::int32_t> out
engine/drafts/step_guesses.h: StepGuesses& guesses, std::vector<PlannedSlice> plan, Scheduler& scheduler, Any forward, const PlannedSlice& p, StepResult result, std::size_t slice, Any said
engine/drafts/suffix_automaton.h: std::vector<std::int32_t> text
engine/draw_table.h: std::int64_t row, const Sequence& sequence, std::int64_t position, Backend& backend, const View& logits
engine/generation.h: Engine& engine, Request request
engine/pace.h: Engine& engine, std::uint64_t id
engine/page_allocator.h: PageAllocator& pages
engine/planned_slice.h: Scheduler& scheduler, Any use
engine/prefix_cache.h: PrefixCache& cache, Any root, std::vector<std::int32_t> tokens, Any most, Any chain, Any pages, Any page_tokens, Any page
engine/rank_steps.h: Runtime& runtime, Any options, Any whole, std::vector<PlannedSlice> plan, Any wants, StepResult result
engine/row_budget.h: RowBudget& rows, bool live, Sequence& s, const PlannedSlice& slice
engine/scheduler.h: Scheduler& scheduler, Sequence& s
engine/sequence_pages.h: SequencePages& pages, Sequence& s, std::uint64_t weights, void (*wait)()
engine/sequence_queues.h: SequenceQueues& queues, Sequence& s
engine/slice_results.h: Sequence& s, const PlannedSlice& p, std::size_t slice, StepResult result, Any hidden
engine/step_counts.h: std::vector<PlannedSlice> plan, EngineCounters& counters, Any model, StepResult result, Any rows
engine/step_result.h: StepResult result, std::size_t slice, Any i
engine/step_runner.h: StepRunner& runner, const WeightSet& weights, Scheduler& scheduler, const StepWants& wants, StepResult result
engine/step_wants.h: StepWants& wants, std::vector<PlannedSlice> plan
engine/weight_turns.h: WeightTurns& turns, Any identity, std::vector<Sequence*> running, std::vector<Sequence*> waiting, Any plans
fleet/channel_deployments.h:
host/acknowledged_numbers.h: std::filesystem::path state
host/batch_pieces.h: std::vector<TrainSequence> sequences, std::int64_t max_positions, std::size_t next, std::size_t end, std::int64_t tokens
host/checkpoint_weights.h: Request& request, CheckpointWeights& weights, std::string owner
host/checkpoints.h: Checkpoints& checkpoints, std::string owner, void (*read)(const std::filesystem::path&)
host/control_plane.h: ControlPlane& control, std::string owner, std::string base_model, Request& request
host/hosted_model.h: HostedModel& model, const OnExecutor& on, AdamParameters adam
host/key_limit.h: const TrainingServiceOptions& options, std::int64_t all, std::int64_t own
host/memory_room.h: MemoryRoom& memory, const OnExecutor& on, HostedModel& model, ModelSettings settings, std::int64_t bytes
host/model_lanes.h: ModelLanes& lanes, std::string owner, std::string model
host/model_life.h: ModelLife& life, std::string owner, std::string session, ModelSettings settings, Encode<ModelRecord> encode
host/model_memory.h: TrainingBase& base, ModelSettings settings, void (*claim)(std::int64_t)
host/model_operations.h: ModelOperations& operations, std::string owner, std::string model, TrainingBatch batch, Encode<TrainingOutput> encode
host/models.h: Models& models, std::string owner, std::string id
host/record_writer.h: RecordWriter& writer, TrainingStore& store, std::string id, std::string text, Any record, Any publish
host/resting.h: Resting& resting, const OnExecutor& on, HostedModel& model
host/retention.h: Retention& retention
host/routing_matrix.h: ExpertShape shape, GeneratedToken token, std::string text
host/sampler_spills.h: SamplerSpills& spills, const OnExecutor& on
host/samplers.h: Samplers& samplers, std::string owner, std::string session, std::string path, Request& request
host/session_life.h: SessionLife& life, std::string owner
host/spill_turns.h: SpillTurns& turns, std::string id, std::vector<float> values, Stream& stream, View view
host/training_base.h: TrainingBase& base
host/training_queue.h: TrainingQueue& queue, Any model_id, std::string owner, Any piece
host/training_requests.h: std::string session, ModelSettings settings
host/training_sampling.h: TrainingSampling& sampling, std::string owner, std::string sampler, SamplingRequest wanted, Encode<SamplingResult> encode
host/waiting_gradients.h: std::filesystem::path folder, const KeyLimit& limit, std::int64_t bytes, std::shared_ptr<TrainedModel> trained, std::shared_ptr<TrainedModel> fresh
host/waiting_reasons.h: WaitingReasons& reasons, std::string owner, std::string request
host/weight_cache.h: std::shared_ptr<Executor> executor, std::int64_t bytes, std::string key, std::filesystem::path folder, SamplerWeights (*read)(const std::filesystem::path&)
http/answer_head.h: std::string text, std::string body, Any headers
http/answer_sender.h: AnswerSender& sender, std::chrono::steady_clock::time_point now, Any response, Transport& transport, Any user
http/client_socket.h: std::string request, bool stop, std::span<char> block
http/deadline.h: Deadline& deadline, Deadline::Clock::time_point now
http/openai_server.h: std::shared_ptr<GenerationService> service
http/request_reader.h: HttpLimits limits, std::string input
http/shared.h: std::shared_ptr<HttpShared> shared, std::int64_t bytes, std::int64_t limit
http/transport.h: std::shared_ptr<Transport> transport, Any block, std::shared_ptr<TransportUser> user, Any fault, std::int64_t bytes
jobs/demo_arm.h: std::vector<ArmResult> results, DemoSettings settings, Any start
jobs/distill_work.h: RlStack& stack, Teachers& teachers, Any prompts, DistillSettings settings, StopToken stop, Run& run
jobs/gate_company.h: GateSpec spec, const Environment& environment, GateSide candidate, Sampler& sampler, GateCheck& check
jobs/gate_divergence.h: GateSpec spec, const Environment& environment, GateSide candidate, GateSide live, StopToken stop, GateCheck& check
jobs/gate_speed.h: GateSpec spec, const Environment& environment, GateSide candidate, GateSide live, StopToken stop, GateCheck& check
jobs/rl_publishing.h: RlStack& stack, nlohmann::ordered_json metrics
jobs/rl_work.h: std::shared_ptr<Environment> environment, RlStack& stack, RlSettings settings, Run& run
losses/distillation.h: std::size_t k, std::vector<float> student, std::vector<float> teacher
kernels/cache/pages.h: Rows rows, std::int64_t sequence, std::int64_t position
model/adapter.h: std::shared_ptr<const Model> model, Backend& backend, std::uint64_t seed
model/adapter_initial.h: std::shared_ptr<const AdapterLayout> layout, std::uint64_t seed
model/adapter_merge.h: std::shared_ptr<const Model> model, WeightImages masters, std::shared_ptr<const AdapterLayout> layout, WeightImages adapter_images
model/archs/latent_mtp.h: std::shared_ptr<DecoderModel> model, LatentAttention::Settings attention, RoutedMlp::Settings sparse
model/archs/registry.h: std::vector<std::string> names
model/batch.h: Backend& backend
model/blocks/block.h: std::unique_ptr<FeedForwardBlock> (*make)(Manifest&, const std::string&), Manifest& manifest, Context& ctx, const Tensor& h
model/blocks/grouped_attention.h: std::shared_ptr<DecoderModel> model
model/blocks/latent_attention.h: std::shared_ptr<DecoderModel> model
model/blocks/mlp.h: std::shared_ptr<DecoderModel> model, Manifest& manifest
model/blocks/mtp_layer.h: const MtpLayer& layer, Context& ctx, Context& ctx2, const Tensor& embedded, const Tensor& embedded2, const Tensor& previous
model/expert_shape.h: const Model& model, std::vector<std::int32_t> row
model/forward_counts.h: Context& context, const Model& model
model/forward_options.h: Runtime& runtime, const WeightSet& weights, KvCache& cache, const Batch& batch, Tape& tape
model/index_pattern.h: std::shared_ptr<const Model> model
model/kept_text.h: Any kept, const WeightSet& weights, std::vector<std::int32_t> tokens, std::int64_t begin, std::int64_t end, Any copy
model/kv_cache.h: Backend& backend, Any shapes, const Profile& profile
model/low_bit_weights.h: std::shared_ptr<const Model> model, const Profile& profile
model/model_facts.h: std::shared_ptr<const Model> model
model/operations/low_rank.h: Context& ctx, Any w
model/operations/make_rows.h: Context& ctx, Tensor o, Tensor log_sum, void (*launch_attention)(Context&, const Tensor&, const Tensor&)
model/page_rows.h: Any books, Any buffer, std::int64_t bytes
model/parameter.h: std::int64_t n, Any k
model/parameter_share.h: const Parameter& p, ParameterId id, int rank, int ranks, const Buffer& buffer
model/quantisation_config.h: nlohmann::ordered_json json
model/recording.h: const RecordedInputs& in
model/row_layout.h: Runtime& runtime, Any page
model/row_values.h: RowSink& sink
model/sharding.h: std::shared_ptr<const Model> model, const Profile& profile, Any place, WeightImages masters
model/state_part.h: Trainer& trainer
model/tape.h: Backend& backend, GradientSet& gradients, Runtime& runtime, const WeightSet& weights, KvCache& cache, const Batch& batch, ForwardOptions options
model/value_head.h: std::shared_ptr<const Model> model, Any config
model/weights.h: Backend& backend, std::shared_ptr<const Model> model, Any images, const Profile& profile
model/work_counters.h: Context& context
parallel/chosen_rows.h: Communicator& group, Stream& stream, std::vector<View> to, std::vector<View> from, std::vector<RowChoice> to_rows, std::vector<RowChoice> from_rows
parallel/collectives.h: Communicator& group, Device& device, View partial, std::int64_t leaves, AddInto add, Stream& stream, View mine, std::vector<View> all, void (*compute)()
parallel/communicator.h: Communicator& group, Stream& stream, std::vector<View> to, std::vector<View> from
parallel/letter.h: std::uint64_t run, std::uint64_t exchange, std::string body
parallel/link_speed.h: Ranks& ranks
parallel/mail.h: std::unique_ptr<Wire> wire, int to, LetterHead head, std::string bytes, ProcessMail::Slot slot, std::uint64_t number, int from
parallel/rank_place.h: Ranks& ranks
parallel/ranks.h: Ranks& ranks
parallel/wire.h: Wire& wire, const void* data
parity/parity_recording.h: std::vector<std::int32_t> tokens, Runtime& runtime, Engine& engine
parity/folder_digests.h:
parity/rank_bits.h:
parity/rank_check.h: Ranks& ranks
parity/score_input.h: std::filesystem::path path, Any use
planning/serving_memory.h: RuntimeSettings settings, EngineOptions engine
planning/token_flop.h: RuntimeSettings settings, Any use
rl/episode.h: const Environment& environment, Any problem, Any show
rl/evaluation.h: std::shared_ptr<const Environment> environment, const Tokenizer& tokenizer, Sampler& sampler
rl/rollout.h: const Environment& environment, const Tokenizer& tokenizer, Sampler& sampler, Any problems, Any seed_of, Any use
rl/trajectory/conversation.h: const Environment& environment, const Problem& problem, const ChatData& data
rl/trajectory/trajectory.h: const Rollout& rollout, Any use
rl/transcript.h: PolicyTraining& training, std::int64_t i, OptimizerStep optimizer, const Tokenizer& tokenizer, BoundedLog& log
runs/adam_settings.h: OptimizerStep config, Schedule schedule, std::int64_t step
runs/divergence.h: Trainer& trainer
runs/held_rates.h: const SftSource& source, std::uint64_t seed, std::int64_t step, std::vector<std::vector<float>> logprobs
runs/local_critic.h: RuntimeSettings runtime, TrainerOptions options, std::shared_ptr<Executor> executor, std::vector<ValueDatum> data, RunDirectory& run
runs/run_file.h: std::filesystem::path path, Any use
runs/run_settings.h: const RunDirectory& run, RunSettings config
runs/sft_data.h: Any chat_data, std::int64_t vocabulary
runs/sft_plan.h: SftAsked asked, const SftSource& source, std::int64_t parameters
runs/sft_transcript.h: std::vector<TrainSequence> batch, ForwardBackwardResult result, const Tokenizer& tokenizer, std::int64_t step, BoundedLog& log
runs/trainer_checkpoints.h: TrainerCheckpoints::WithModel with_model, RankLayout ranks, std::filesystem::path folder, CheckpointHead head
runs/trainer_port.h: TrainerPort& trainer, std::vector<PolicyDatum> data
runs/training_state.h: std::filesystem::path run, const Manifest& manifest, const Profile& profile, Trainer& trainer
runs/transcript_text.h: nlohmann::ordered_json json, const Tokenizer& tokenizer, std::vector<std::int32_t> ids, std::vector<float> logprobs
runs/truncated_importance.h: std::vector<TrainSequence> sequences, LocalTrainer& trainer
runs/value_port.h: ValuePort& port, std::vector<ValueDatum> data
serving/callers.h: Request request, Callers& callers
serving/context_limit.h: GenerationService& service
serving/deployment_sleep.h: Deployments& deployments, Any retry_after
serving/device_piece.h: Any ann, Any bob, Executor& executor
serving/draft_order.h: Request request, CompletionOrder order, Any usual
serving/family_facts.h: nlohmann::ordered_json json, nlohmann::ordered_json config
serving/fleet_port.h: std::shared_ptr<FleetPort> fleet, void (*wait)(), Any show
serving/gate.h: GateSpec spec, Any candidate, bool live, Any judge, Any told
serving/grammars.h: std::shared_ptr<const Tokenizer> tokenizer, std::vector<std::int32_t> end_tokens, Request request, nlohmann::ordered_json schema
serving/hosted_deployment.h: std::shared_ptr<HostedDeployments> deployments
serving/keep_forward.h: KeepForwardSettings settings, OpenedModel opened, EngineOptions engine
serving/kept_requests.h: std::shared_ptr<GenerationService> service, std::string owner
serving/load_queue.h: LoadQueue& queue, void (*load)(const char*), LoadQueue::Clock::time_point now
serving/local_sampler.h: std::shared_ptr<GenerationService> service, Any requests
serving/model_deployment.h: std::shared_ptr<GenerationService> service, std::function<std::shared_ptr<GenerationService>()> open
serving/named_adapters.h: std::shared_ptr<Runtime> runtime, std::shared_ptr<Executor> executor, Request request
serving/ports.h: Sampler& sampler, Any requests, Any use
serving/served_defaults.h: OpenedModel opened, std::filesystem::path folder
serving/served_weights.h: GenerationService& service, std::shared_ptr<const WeightSet> weights
serving/statistics.h: ServiceStatistics& statistics
serving/text_stream.h: const Tokenizer& tokenizer, std::vector<std::int32_t> ids, void (*send)(const std::string&)
serving/token_constraints.h: std::shared_ptr<TokenConstraint> constraint, std::vector<std::int32_t> end_tokens, std::int64_t vocabulary
serving/tool_prompt.h: ChatTemplateInput input
serving/version_gate.h: std::shared_ptr<VersionGate> gate, std::string id, std::shared_ptr<const WeightSet> weights, std::shared_ptr<const AdapterWeights> adapter, StopToken stop, Any stay, Any swap, Any ask_again
serving/version_names.h: VersionNames& names, std::string id
sync/bit_reader.h: std::string text
sync/bit_writer.h: std::string text
sync/downloads.h: std::shared_ptr<Store> store, Any digests, Any digest
sync/folder_tensors.h: std::string bytes
sync/mirror.h: std::shared_ptr<Store> from, std::shared_ptr<Store> to
sync/snapshot.h: const Store& store, std::string bytes
sync/snapshot_check.h: std::shared_ptr<Store> store, std::string id
sync/snapshot_pull.h: std::shared_ptr<Store> store, std::string id
sync/snapshot_write.h: std::shared_ptr<Store> store, std::string id
sync/sparse_codec.h: ElementKind kind, const void* before, const void* after, std::int64_t n, void* to
sync/varint.h: std::string text
tensor/view.h: View& view
text/grammar/schema_work.h: std::size_t states, std::size_t classes
text/message/argument_types.h: ArgumentTypes& types
text/message/json_scanner.h: std::string text, Any begin, Any end
text/tokenizer/aligned_text.h: TextPiece& piece, PieceArena& arena
text/tokenizer/bpe.h: nlohmann::ordered_json json, std::vector<std::int32_t> ids
text/tokenizer/pre_tokenizer.h: PreTokenizer& pre_tokenizer, Any piece, Any arena, Any sink
text/tokenizer/unicode_forms.h: std::string text
train/kept_passes.h: std::int64_t bytes
train/loss_metrics.h: LossOptions loss, std::vector<TrainSequence> data, ForwardBackwardResult result
train/mtp_rank.h: Runtime& runtime, Any masters, TrainerOptions options, RankPlace place, std::shared_ptr<const WeightSet> weights, std::vector<TrainSequence> data, AdamParameters adam
host/shared_prompts.h: TrainingBatch batch, LossOptions loss, std::vector<TrainSequence> sequences
train/declared_prompts.h: std::vector<TrainSequence> batch
train/mtp_trainer.h: Runtime& runtime, std::shared_ptr<const ModelReader> reader, const WeightSet& model_weights, std::vector<TrainSequence> data, AdamParameters adam
train/optimizers/adam.h: AdamParameters adam, Backend& backend, Any master, Any m, Any v, Any next, Any gradient, Any norm
train/optimizers/muon.h: Backend& backend, Any parameter, Any master, Any momentum, Any next, Any gradient
train/rank_record.h: std::vector<TrainSequence> data, RankLayout layout, Any group, ForwardBackwardResult result, Any sums
train/sequence_place.h: RankLayout layout, RankPlace place
train/whole_state.h: Trainer& trainer
trained/state_shares.h: TrainedModel& model, std::filesystem::path folder
trained/trainer_shares.h: Trainer& trainer, Ranks& ranks, const Manifest& manifest, AdamParameters adam
"""
