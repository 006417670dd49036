// `lockstep serve`: serves a model over OpenAI's API until Ctrl-C, SIGTERM or SIGHUP.
#include <malloc.h>
#include <sys/resource.h>

#include <algorithm>
#include <cmath>
#include <cstdio>
#include <cstdlib>
#include <ctime>
#include <limits>
#include <thread>

#include "api/fireworks/fleet_routes.h"
#include "api/openai/model_deployment_routes.h"
#include "api/page/device_route.h"
#include "api/store_routes.h"
#include "base/file.h"
#include "base/log.h"
#include "base/signals.h"
#include "cli/commands.h"
#include "cli/common_options.h"
#include "cli/deploy_options.h"
#include "cli/deployment_opener.h"
#include "cli/follow_options.h"
#include "cli/serve_publishing.h"
#include "http/openai_server.h"
#include "http/page_server.h"
#include "http/training_server.h"
#include "planning/serving_memory.h"
#include "serving/context_limit.h"
#include "serving/tool_prompt.h"

namespace lockstep {
namespace {
bool has_key_in_environment() {
  const char* key = std::getenv("LOCKSTEP_API_KEY");
  return key && *key;
}

// Of the file and of the environment.
ApiKeys read_keys(const std::string& file) {
  ApiKeys keys;
  if (!file.empty()) keys.read_file(file);
  if (has_key_in_environment()) with_context("reading LOCKSTEP_API_KEY", [&] { keys.add("environment", std::getenv("LOCKSTEP_API_KEY")); });
  return keys;
}

// Who keeps what the key file allows each key.
struct Terms {
  std::shared_ptr<Executor> executor;
  std::shared_ptr<Deployments> deployments;
  std::shared_ptr<RateLimits> rates;
  // Of one model; they are counted for each.
  static void set_streams(const ApiKeys& keys, GenerationService& service) {
    std::map<std::string, std::int64_t> streams;
    for (const auto& [name, terms] : keys.terms())
      if (terms.streams > 0) streams[name] = terms.streams;
    service.bounds().set_streams(std::move(streams));
  }
  void set(const ApiKeys& keys) const {
    std::map<std::string, double> weights;
    const std::map<std::string, KeyTerms> all = keys.terms();
    for (const auto& [name, terms] : all) weights[name] = terms.weight;
    executor->set_keys(std::move(weights));
    for (const Deployments::Line& line : deployments->list()) set_streams(keys, *line.service);
    rates->set(all);
  }
};

// The keys of a file that was changed, from the next request on. One that cannot be read changes nothing.
void reload_keys(KeyRing& ring, const std::string& file, const Terms& terms) {
  try {
    ApiKeys keys = read_keys(file);
    log_info("API keys read again", {{"keys", keys.size()}});
    terms.set(keys);
    ring.replace(std::move(keys));
  } catch (const Error& e) {
    log_error("the API keys could not be read again; those before are still good", {{"reason", e.what()}});
  }
}

ClassShares read_shares(const std::string& text) {
  try {
    return parse_class_shares(text);
  } catch (const Error& e) {
    throw UsageError(e.message());
  }
}

// Defaults of a server with the training API: batches are megabytes, clients open hundreds of sockets.
constexpr std::int64_t kTrainingBodyKilobytes = 64 << 10, kTrainingConnections = 4096;

// Large blocks of the host go back to the system when they are freed: what is counted is what is held. Each thread has a heap of its own, so
// that short requests do not wait for one that frees a long body.
void return_freed_memory() {
  mallopt(M_MMAP_THRESHOLD, 1 << 20);
  mallopt(M_ARENA_MAX, 64);
}

// The ledger's figures, by category, for a scrape.
std::function<void(PrometheusText&)> memory_metrics(const std::shared_ptr<MemoryLedger>& ledger) {
  return [ledger](PrometheusText& text) {
    text.family("lockstep_memory_limit_bytes", "gauge", "What the server may take of memory (--memory-megabytes).");
    text.sample({}, static_cast<double>(ledger->total()));
    text.family("lockstep_memory_claimed_bytes", "gauge", "Memory that is promised, by what it is for.");
    for (const MemoryLedger::Holding& one : ledger->holdings()) text.sample({{"category", one.category}}, static_cast<double>(one.bytes));
  };
}

// A client of the training API opens hundreds of sockets: as many as the system lets us have.
void raise_open_files() {
  rlimit limit{};
  if (getrlimit(RLIMIT_NOFILE, &limit) != 0 || limit.rlim_cur == limit.rlim_max) return;
  limit.rlim_cur = limit.rlim_max;
  setrlimit(RLIMIT_NOFILE, &limit);
}
}  // namespace

int serve_command(const Arguments& arguments) {
  RuntimeSettings runtime;
  HttpOptions http;
  ServingOptions serving;
  std::string name, runs = "runs", frozen_base = "none", frozen_layers = "linear";
  std::int64_t cache_megabytes = 0;
  Access access;
  std::string key_file, log_format = "text", chat_template, message_format;
  bool insecure = false, training = false, separate_passes = false;
  std::string share_prefixes = "key", shares = "live=60,rollouts=20,training=20";
  TrainingServiceOptions training_options;
  std::string state = training_options.state.string(), custom_loss = "server";
  std::vector<std::string> aliases, shape_files, adapters;
  std::string adapter_folder, store, tool_format, generation_config = "auto";
  std::int64_t token_seconds = 0;
  std::int64_t metadata_kilobytes = training_options.metadata_bytes >> 10, checkpoint_megabytes = training_options.checkpoint_bytes >> 20;
  std::int64_t gap_seconds = std::llround(training_options.gap_seconds);
  std::int64_t session_days = std::llround(training_options.session_seconds / 86400), sampler_hours = std::llround(training_options.sampler_seconds / 3600);
  std::int64_t session_idle_minutes = std::llround(training_options.session_idle_seconds / 60), gradient_megabytes = training_options.gradient_bytes >> 20;
  std::int64_t sampler_megabytes = training_options.sampler_bytes >> 20, reuse_megabytes = training_options.reuse_bytes >> 20;
  std::int64_t max_body_kilobytes = http.max_body_bytes >> 10, body_megabytes = http.max_bodies_bytes >> 20, memory_megabytes = 0;
  FollowSettings follow;
  PublishSettings publish;
  DeploySettings deploy;
  http.access_log = true;
  OptionTable table("serve",
                    "Serves a model over OpenAI's HTTP API, with GET /healthz, /readyz and /metrics. Ctrl-C, SIGTERM or a SIGHUP that reads no keys ends it: "
                    "running requests finish; a second Ctrl-C or SIGTERM ends it at once.",
                    {"lockstep serve --model models/countdown-glm", "lockstep serve --model models/countdown-glm --port 0",
                     "lockstep serve --model models/countdown-glm --host 0.0.0.0 --api-key-file keys.txt --tls-certificate chain.pem --tls-key key.pem",
                     "lockstep serve --deploy v7=models/countdown-glm --deploy v8=STORE/chat --route chat=v7:95,v8:5"});
  const auto with_training = [&] { table.refused("without --training", [&training] { return !training; }); };
  add_model_option(table, runtime);  // or the first --deploy is it
  add_device_options(table, runtime);
  add_ranks_option(table, &runtime.ranks);
  add_deploy_options(
      table, deploy, [&training] { return training; }, [&key_file] { return !key_file.empty() || has_key_in_environment(); });
  table.text("host", &http.host, "ADDRESS", "Address to listen on; 0.0.0.0: every interface. One that other machines reach needs API keys");
  table.integer("port", &http.port, 0, 65535, "N", "Port to listen on; 0: any free one, which is printed");
  table.text("name", &name, "NAME", "The model's name in requests (default: the folder's name)");
  table.input("chat-template", &chat_template, "FILE", "A Jinja template for chat instead of the model's");
  table.text("message-format", &message_format, "NAME",
             fmt::format("How the model writes tool calls: {} (default: as its template shows)", fmt::join(message_format_names(), ", ")));
  table.text("tool-format", &tool_format, "NAME",
             fmt::format("For a chat template without tools: describe them in the system message, with calls in the format of {}",
                         fmt::join(tool_format_names(), ", ")));
  table.choice("generation-config", &generation_config, {"auto", "none"},
               "Whether generation_config.json sets sampling defaults for requests (temperature, top_p, top_k, min_p, repetition_penalty), "
               "and what ends a turn. The training API samples from the model's own distribution either way");
  add_draft_options(table, serving.engine.drafts);
  table.flag("training", &training, "Serve the training API too: clients of the `tinker` and `fireworks-ai` packages train on this model as a base");
  table.choice("frozen-base", &frozen_base, {"none", "int4", "fp8", "mxfp8"},
               "Quantise the base's weights to this format and freeze them; adapters train over them. Short for --profile cpu-FORMAT-base");
  table.choice("frozen-layers", &frozen_layers, {"linear", "experts"},
               "Which weights --frozen-base quantises: all linear layers, or only experts (--profile cpu-FORMAT-experts)");
  table.refused("without --frozen-base", [&frozen_base] { return frozen_base == "none"; });
  table.kept_folder("state", &state, "Folder of the training API's sessions and checkpoints; a server restarted on it continues");
  with_training();
  table.inputs("adapter", &adapters, "NAME=DIR", "A PEFT adapter of the model, which clients select by its name");
  table.input("adapter-folder", &adapter_folder, "DIR", "Adapters in this folder may be loaded while the server runs (POST /v1/load_lora_adapter)");
  table.integer("max-adapters", &serving.adapters.most, 1, 1 << 16, "N", "Most named adapters loaded at once");
  table.refused("without --adapter or --adapter-folder", [&] { return adapters.empty() && adapter_folder.empty(); });
  table.integer("token-seconds", &token_seconds, 0, 86400 * 30, "N",
                "Lifetime of the tokens for which clients of the training API exchange their keys; 0: they send their keys");
  with_training();
  add_follow_options(table, follow, publish);
  add_publish_options(table, publish, "Make every sampler's checkpoint a snapshot of the store, which servers take that follow the channel (hot load)");
  table.refused("without --training", [&training] { return !training; }, {"publish"});
  table.texts("alias", &aliases, "NAME", "Another name of the base model for clients (Qwen/Qwen3-8B)");
  with_training();
  table.inputs("shapes", &shape_files, "FILE", "Training shapes besides the published ones, for clients that resolve them");
  with_training();
  table.integer("max-models", &training_options.max_models, 1, 1 << 16, "N",
                "Most clients' models in memory; the least recently used are moved to disk, with their gradients");
  with_training();
  table.integer("gradient-megabytes", &gradient_megabytes, 0, 1 << 30, "N",
                "Disk for gradients that no optim_step has taken, of all models; one API key has its --key-share of that. 0: a quarter of the disk that "
                "--state is on");
  with_training();
  table.integer("key-share", &training_options.key_share, 1, 100, "PERCENT",
                "Share of one API key in --gradient-megabytes, of --checkpoint-megabytes, of --body-megabytes, and of the limits of "
                "sessions, samplers, models on disk, checkpoints, jobs, deployments and promoted models");
  table.integer("metadata-kilobytes", &metadata_kilobytes, 1, 1 << 20, "N", "Largest user_metadata, and largest tags, of one session, model or checkpoint");
  with_training();
  table.integer("checkpoint-megabytes", &checkpoint_megabytes, 0, 1 << 30, "N",
                "Most megabytes of all checkpoints and promoted models; one API key has its --key-share of that. 0: half of the disk that --state is on");
  with_training();
  table.integer("gap-seconds", &gap_seconds, 1, 86400, "S",
                "A number of a model's operations that is missing for so long counts as skipped: those behind it go on, and a late one is an error");
  with_training();
  table.integer("session-days", &session_days, 0, 36500, "N",
                "Delete sessions that were idle for so long, with their models and samplers; checkpoints stay. 0: never");
  with_training();
  table.integer("session-idle-minutes", &session_idle_minutes, 0, 60 * 24 * 36500, "N",
                "The models of a session that was not heard from for so long leave memory, as those of one that was closed do; they come back when they are "
                "used. 0: never");
  with_training();
  table.integer("sampler-hours", &sampler_hours, 0, 24 * 36500, "N",
                "Delete unnamed sampler snapshots that were not sampled for so long. 0: with their session");
  with_training();
  table.integer("sampler-megabytes", &sampler_megabytes, 0, 1 << 24, "N",
                "Memory for sampler snapshots, and as much again for checkpoints that are sampled; more are moved to disk");
  with_training();
  table.flag("offload-optimizer", &training_options.offload_optimizer,
             "Keep the optimizer state of trained models in files under --state instead of in memory; no bit changes");
  with_training();
  table.flag("separate-passes", &separate_passes, "Train each adapter in separate passes, instead of small batches of several in one: slower, the same bits");
  with_training();
  table.integer("reuse-megabytes", &reuse_megabytes, 0, 1 << 24, "N",
                "Memory for forwards kept for the gradient of a custom loss, which then needs no second forward; 0: none");
  with_training();
  table.choice("custom-loss", &custom_loss, {"server", "client"}, "Where traced losses of `tinker` clients run");
  with_training();
  table.input("runs", &runs, "DIR", "Folder of runs that the page at / shows");
  table.input("store", &store, "DIR", "Store of snapshots that clients read at /store: lockstep snapshot pull http://HOST:PORT/store CHANNEL OUT");
  table.integer("max-open", &serving.max_open, 1, 1 << 20, "N", "Most open requests; more are answered with 429");
  table.integer("memory-megabytes", &memory_megabytes, 0, 1 << 30, "N",
                fmt::format("Memory of the whole server: models, cache, trained models, samplers, requests; what does not fit is refused, or moved to disk. 0: "
                            "{}% of what is free at the start",
                            kMemoryPercent));
  table.integer("cache-megabytes", &cache_megabytes, 0, 1 << 24, "N",
                fmt::format("Memory of the key-value cache, which limits the context and how many requests run at a time. 0: {}% of what the model leaves of "
                            "--memory-megabytes, with --training {}%; at most what {} requests of the whole context take, or {} MB",
                            kCachePercent, kTrainingCachePercent, kCacheRequests, kSmallCache >> 20));
  table.choice("share-prefixes", &share_prefixes, {"key", "all"},
               "Who shares cached prompts: requests of the same API key, or all, who may then learn what others asked (docs/openai-api.md)");
  table.text("shares", &shares, "live=A,rollouts=B,training=C",
             "Percent of the device's time that each class of work has at least while it has work; what one leaves goes to the others (docs/tenants.md)");
  with_training();
  table.input("api-key-file", &key_file, "FILE",
              "Keys that requests must have as `Authorization: Bearer KEY`: lines `NAME KEY` or `NAME sha256:HEX`, behind that what it is allowed: weight=N, "
              "requests_per_minute=N, tokens_per_minute=N, streams=N; SIGHUP reads it again. LOCKSTEP_API_KEY holds one more");
  table.flag("insecure", &insecure, "Allow an address that other machines reach without an API key");
  table.input("tls-certificate", &http.tls_certificate, "FILE", "Certificate chain in PEM: https instead of http");
  table.input("tls-key", &http.tls_key, "FILE", "Its private key in PEM, without a passphrase");
  table.texts("cors-origin", &access.cors_origins, "ORIGIN", "Allow requests from pages of this origin (https://example.com; *: all)");
  table.texts("allow-host", &access.hosts, "NAME", "Name that clients may call the server by, besides localhost; when given, no other name is answered");
  table.integer("max-connections", &http.max_connections, 1, 1 << 16, "N",
                fmt::format("Most open connections; default with --training: {}", kTrainingConnections));
  table.integer("max-body-kilobytes", &max_body_kilobytes, 1, 1 << 20, "N",
                fmt::format("Largest request body; more is answered with 413; default with --training: {}", kTrainingBodyKilobytes));
  table.integer("body-megabytes", &body_megabytes, 1, 1 << 24, "N",
                "Memory for all request bodies being read, decoded or waiting for their turn; one API key may take --key-share percent. More is answered with "
                "429 or 503");
  table.integer("max-held-bytes", &http.max_held_bytes, 1 << 20, std::int64_t{1} << 40, "N",
                "Most bytes of all answers that wait for their clients; beyond, the client that has not read for longest is closed");
  table.integer("max-pending-bytes", &http.max_pending_bytes, 1 << 10, std::int64_t{1} << 30, "N", "Most unread bytes of one stream; beyond, it is closed");
  table.number("idle-seconds", &http.idle_seconds, 0.1, 86400, "X", "How long a connection may wait between requests");
  table.number("body-seconds", &http.body_seconds, 0.1, 86400, "X", "How long a request's body may take");
  table.number("write-seconds", &http.write_seconds, 0.1, 86400, "X", "How long a client may take to read 256 KB of its answer");
  table.flag("access-log", &http.access_log, "Log one line per request: id, method, route, status, bytes, milliseconds, name of the key");
  table.choice("log-format", &log_format, {"text", "json"}, "Format of the log on stderr");
  table.number("drain-seconds", &http.drain_seconds, 0, 3600, "X", "How long a stopping server reports it (readyz: 503) before it stops listening");
  table.number("stop-seconds", &http.stop_seconds, 0, 3600, "X", "How long running requests may take to finish when the server stops");
  table.accept_config();
  if (!table.parse(arguments)) return kExitOk;

  std::vector<DeploySource> sources = deploy_sources(deploy);
  const std::vector<TrafficRule> rules = deploy_routes(deploy);
  std::unique_ptr<const ModelPlace> own_place;
  if (runtime.model.empty()) {
    if (sources.empty()) throw UsageError("--model is missing; `lockstep serve --help` shows an example");
    if (!name.empty()) throw UsageError(fmt::format("name is {}, allowed is to leave it out without --model: --deploy says the names", name));
    own_place = std::make_unique<const ModelPlace>(sources.front().source);
    runtime.model = own_place->path();
    name = sources.front().name;
  }
  const std::string own_source = own_place ? sources.front().source : runtime.model;
  if (own_place) sources.erase(sources.begin());
  if (!tool_format.empty() && !message_format.empty())
    throw UsageError(fmt::format("tool-format is {} and message-format is {}, allowed is one of the two", tool_format, message_format));
  if (frozen_base != "none") {
    if (runtime.profile != RuntimeSettings().profile)
      throw UsageError(fmt::format("frozen-base is {} and profile is {}, allowed is one of the two", frozen_base, runtime.profile));
    runtime.profile = fmt::format("cpu-{}-{}", frozen_base, frozen_layers == "experts" ? "experts" : "base");
  }
  check_follow(follow, training, rank_layout(runtime.ranks));
  check_publish(publish);
  const ClassShares class_shares = read_shares(shares);
  if (training && !table.given("max-body-kilobytes")) max_body_kilobytes = kTrainingBodyKilobytes;
  if (training && !table.given("max-connections")) http.max_connections = kTrainingConnections;
  set_log_format(parse_log_format(log_format));
  http.max_body_bytes = max_body_kilobytes << 10;
  serving.share_prefixes = share_prefixes == "all";
  std::shared_ptr<KeyRing> ring;
  if (ApiKeys keys = read_keys(key_file); !keys.empty()) access.keys = ring = std::make_shared<KeyRing>(std::move(keys));
  if (!access.keys && !insecure && !is_loopback_address(http.host))
    throw UsageError(fmt::format(
        "host is {}, which other machines reach, and there is no API key: --api-key-file or LOCKSTEP_API_KEY gives keys, --insecure goes without", http.host));
  if (access.keys && http.tls_certificate.empty() && !is_loopback_address(http.host))
    log_warning("API keys, prompts and answers cross the network in clear text; --tls-certificate and --tls-key encrypt them, or a proxy in front that does",
                {{"host", http.host}});
  ShapeCatalog shapes = ShapeCatalog::published();
  for (const std::string& file : shape_files) shapes.add(read_file(file, kMostShapeBytes), file);
  install_interrupt_handlers();
  if (!key_file.empty()) install_reload_handler();
  serving.adapters.root = adapter_folder;
  return_freed_memory();
  std::int64_t beside_bytes = 0;
  std::vector<std::unique_ptr<const ModelPlace>> places;  // a snapshot is pulled once
  for (DeploySource& one : sources) {
    RuntimeSettings beside = runtime;
    beside.model = places.emplace_back(std::make_unique<const ModelPlace>(one.source))->path();
    EngineOptions engine = serving.engine;
    engine.ranks = rank_layout(runtime.ranks);
    beside_bytes += least_deployment_bytes(beside, engine);
  }
  const ServingMemoryOptions wanted_memory{.megabytes = memory_megabytes,
                                           .training = training,
                                           .cache_bytes = cache_megabytes << 20,
                                           .beside_bytes = beside_bytes,
                                           .answer_bytes = http.max_held_bytes,
                                           .upload_bytes = body_megabytes << 20};
  EngineOptions planned = serving.engine;
  planned.ranks = rank_layout(runtime.ranks);
  const ServingMemory memory = admit_serving(runtime, planned, wanted_memory);
  serving.engine.cache_bytes = memory.cache_bytes;
  http.max_held_bytes = memory.answer_bytes;
  serving.adapters.ledger = memory.ledger;
  serving.response_bytes = static_cast<std::size_t>(memory.response_bytes);
  serving.grammar_bytes = static_cast<std::size_t>(memory.grammar_bytes());
  const auto executor = std::make_shared<Executor>(class_shares);
  const auto rates = access.rates = std::make_shared<RateLimits>();
  training_options.count_tokens = serving.count_tokens = [rates](const std::string& key, std::int64_t tokens) { rates->use(key, tokens); };
  std::shared_ptr<GenerationService> service;
  std::shared_ptr<TrainingBase> base;
  std::int64_t model_positions = 0, position_bytes = 0;
  Followed followed;
  MemoryLedger::Claim spare;
  {
    OpenedModel opened = open_model(runtime);
    serving.engine.ranks = opened.ranks;
    ServingModel model = serving_model(opened);
    model_positions = opened.model->facts().max_positions;
    position_bytes = cache_bytes_a_position(*opened.model, opened.runtime->profile, serving.engine);
    if (training && opened.ranks.size() > 1) throw UsageError(fmt::format("ranks is {}, allowed with --training is one rank", opened.ranks.text()));
    model.executor = executor;
    if (follow.follows()) {
      followed = {opened.runtime, executor, model.weights, opened.reader, opened.model->facts().expert_shape()};
      if (follow.swap_memory == "double")
        spare = memory.ledger->claim("spare weights", {}, loaded_bytes(*opened.model, opened.runtime->profile).weights,
                                     "a second copy of the weights (--swap-memory single needs none)");
    }
    if (training) opened.runtime->backend.set_pause_point(executor);
    try {
      add_chat(model, runtime.model, chat_template, message_format, tool_format);
    } catch (const Error& e) {
      if (!chat_template.empty() || !message_format.empty() || !tool_format.empty()) throw;
      log_warning("the model's chat template is not understood, so there is no chat; --chat-template gives another", {{"reason", e.what()}});
    }
    add_generation_config(model, runtime.model, generation_config);
    if (model.defaults.says_sampling())
      log_info("generation_config.json says how requests are sampled that do not say it; --generation-config none: from the model's own distribution",
               {{"defaults", to_json(model.defaults).dump()}});
    if (!name.empty()) model.name = name;
    if (training) {
      base = std::make_shared<TrainingBase>();
      base->name = model.name;
      base->folder = std::filesystem::canonical(runtime.model).string();
      base->names = aliases;
      if (!base->is_called(model.name)) base->names.push_back(model.name);
      base->folders = {runtime.model, base->folder};
      base->executor = model.executor;
      base->weights = model.weights;
      base->ledger = memory.ledger;
    }
    service = std::make_shared<GenerationService>(std::move(model), serving);
    if (training) base->opened = std::move(opened);
  }
  for (const std::string& adapter : adapters) {
    const std::size_t equals = adapter.find('=');
    if (equals == std::string::npos || equals + 1 == adapter.size()) throw UsageError(fmt::format("adapter is '{}', allowed is NAME=DIR", adapter));
    service->adapters().load(adapter.substr(0, equals), adapter.substr(equals + 1));
  }
  ModelDeployment own{.name = service->model().name(), .source = own_source, .service = service};
  own.created = static_cast<double>(std::time(nullptr));
  const auto deployments = std::make_shared<Deployments>(std::make_shared<TrafficTable>(), std::move(own));
  const auto opener = std::make_shared<DeploymentOpener>(DeploymentParts{.runtime = runtime,
                                                                         .serving = serving,
                                                                         .executor = executor,
                                                                         .ledger = memory.ledger,
                                                                         .cache_bytes = cache_megabytes << 20,
                                                                         .generation_config = generation_config,
                                                                         .prepare =
                                                                             [ring](GenerationService& one) {
                                                                               if (ring) Terms::set_streams(*ring->now(), one);
                                                                             },
                                                                         .folder = deploy.folder});
  for (std::size_t i = 0; i < sources.size(); ++i) {
    deployments->check_name(sources[i].name);
    ModelDeployment one = opener->open(sources[i].name, places[i]->path());
    one.source = sources[i].source;
    deployments->add(std::move(one));
  }
  for (const TrafficRule& rule : rules) deployments->route(rule.alias, rule.shares);
  places.clear();
  std::shared_ptr<TrainingService> trainers;
  std::unique_ptr<ServePublishing> publishing;
  TrainingRouteOptions route_options;
  if (training) {
    training_options.state = state;
    training_options.share_passes = !separate_passes;
    const auto seconds = [](std::int64_t n, double unit) { return n > 0 ? static_cast<double>(n) * unit : std::numeric_limits<double>::infinity(); };
    training_options.session_seconds = seconds(session_days, 86400);
    training_options.gap_seconds = static_cast<double>(gap_seconds);
    training_options.sampler_seconds = seconds(sampler_hours, 3600);
    training_options.session_idle_seconds = seconds(session_idle_minutes, 60);
    training_options.gradient_bytes = gradient_megabytes << 20;
    training_options.sampler_bytes = sampler_megabytes << 20;
    training_options.metadata_bytes = metadata_kilobytes << 10;
    training_options.checkpoint_bytes = checkpoint_megabytes << 20;
    training_options.custom_losses = custom_loss == "server";
    training_options.reuse_bytes = reuse_megabytes << 20;
    if (!publish.place.empty()) {
      publishing = std::make_unique<ServePublishing>(publish, follow.quorum, base->opened, executor, runtime.model);
      publishing->add_to(training_options);
    }
    trainers = std::make_shared<TrainingService>(base, service, training_options);
    constexpr std::int64_t kTokenSeconds = 3600;  // of clients that ask unasked
    route_options.tokens = access.tokens =
        std::make_shared<const TokenSigner>(training_options.state / "token-key", token_seconds > 0 ? token_seconds : kTokenSeconds);
    route_options.wants_tokens = token_seconds > 0;
    route_options.tls = !http.tls_certificate.empty();
    raise_open_files();
  }
  http.max_bodies_bytes = memory.upload_bytes;
  http.bodies_key_share = training_options.key_share;
  const Terms terms{executor, deployments, rates};
  if (ring) terms.set(*ring->now());
  if (!http.state) http.state = std::make_shared<ServerState>();
  http.state->add_metrics([executor, rates](PrometheusText& text) {
    executor->append_metrics(text);
    rates->append_metrics(text);
  });
  http.state->add_metrics([deployments](PrometheusText& text) { append_deployment_metrics(*deployments, text); });
  if (trainers) http.state->add_metrics(training_metrics(trainers));
  if (memory.ledger->total() < MemoryLedger::kUnlimited) http.state->add_metrics(memory_metrics(memory.ledger));
  const PageOptions page{.places = {.roots = {runs}}, .title = service->model().name(), .playground = true, .device = true};
  const std::shared_ptr<ChannelFleet> fleet = follow.follows() ? open_fleet(follow) : nullptr;
  std::unique_ptr<Follower> follower;  // made once the port is known
  const auto measured = std::make_shared<std::atomic<const Follower*>>(nullptr);
  if (fleet)
    http.state->add_metrics([measured](PrometheusText& text) {
      if (const Follower* one = *measured) one->append_metrics(text);
    });
  ModelDeploymentRouteOptions changes{.open = nullptr, .keys = access.keys, .administrators = deploy.administrators};
  if (!deploy.folder.empty()) changes.open = [opener](const std::string& called, const std::string& source) { return opener->open_below(called, source); };
  const auto server = serve_openai(std::shared_ptr<const Deployments>(deployments), http, std::move(access), [&](Routes& routes) {
    if (!training) add_model_deployment_routes(routes, deployments, changes);
    add_page_routes(routes, page);
    DeviceSources device{service, executor};
    if (trainers) device.models_waiting = [trainers] { return trainers->waiting_reasons().models_waiting(); };
    add_device_route(routes, std::move(device));
    if (fleet) add_fleet_routes(routes, service, fleet, followed.experts);
    if (trainers) add_training_routes(routes, trainers, shapes, route_options);
    if (!store.empty()) add_store_routes(routes, store);
  });
  if (fleet) {
    follower = start_follower(follow, service, followed, fleet, server->url(), server->port());
    followed = {};
    *measured = follower.get();
  }
  // In one write: who waits for the first line may close its end after it.
  std::fputs(
      fmt::format("listening on {}\n{}\n", server->url(), context_sentence(service->limits(), model_positions, position_bytes, serving.engine.max_sequences))
          .c_str(),
      stdout);
  std::fflush(stdout);
  log_info("serving", {{"model", service->model().name()}, {"profile", service->model().profile_name()}, {"url", server->url()}});
  while (!interrupted()) {
    if (take_reload()) reload_keys(*ring, key_file, terms);
    std::this_thread::sleep_for(std::chrono::milliseconds(50));
  }
  log_info("stopping", {{"open_requests", service->bounds().open()}});
  if (follower) follower->stop();
  server->stop();
  publishing.reset();
  if (trainers) trainers->stop();
  deployments->stop();
  log_info("stopped");
  return kExitOk;
}

}  // namespace lockstep
