// `lockstep serve`: serves a model over OpenAI's API until Ctrl-C, SIGTERM or SIGHUP.
#include <malloc.h>
#include <sys/resource.h>

#include <cstdio>
#include <thread>

#include "api/fireworks/deployment_routes.h"
#include "api/fireworks/fleet_routes.h"
#include "api/fireworks/model_completions.h"
#include "api/openai/held_streams.h"
#include "api/openai/model_deployment_routes.h"
#include "api/page/device_route.h"
#include "api/store_routes.h"
#include "base/file.h"
#include "base/log.h"
#include "base/signals.h"
#include "cli/commands.h"
#include "cli/common_options.h"
#include "cli/follow_options.h"
#include "cli/profile_options.h"
#include "cli/serve_deployments.h"
#include "cli/serve_http_options.h"
#include "cli/serve_keys.h"
#include "cli/serve_publishing.h"
#include "cli/serve_training_options.h"
#include "http/openai_server.h"
#include "http/page_server.h"
#include "http/training_server.h"
#include "planning/serving_memory.h"
#include "serving/context_limit.h"
#include "serving/served_defaults.h"
#include "serving/tool_prompt.h"
#include "trained/led_model.h"

namespace lockstep {
namespace {
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
  ServingOptions serving;
  std::string name, runs = "runs", frozen_base = "none", frozen_layers = "linear";
  std::int64_t cache_megabytes = 0;
  ServeHttpSettings net;
  HttpOptions& http = net.http;
  Access& access = net.access;
  std::string chat_template, message_format;
  std::string share_prefixes = "key", shares = "live=60,rollouts=20,training=20";
  ServeTrainingSettings trained;
  const bool& training = trained.training;
  std::vector<std::string> adapters;
  std::string adapter_folder, store, tool_format, generation_config = "auto";
  std::int64_t memory_megabytes = 0;
  double live_token_ms = 0;
  FollowSettings follow;
  PublishSettings publish;
  DeploySettings deploy;
  ProfileOptions profile;
  ProcessSettings processes;
  OptionTable table("serve",
                    "Serves a model over OpenAI's HTTP API, with GET /healthz, /readyz and /metrics. Ctrl-C, SIGTERM or a SIGHUP that reads no keys ends it: "
                    "running requests finish; a second Ctrl-C or SIGTERM ends it at once.",
                    {"lockstep serve --model models/countdown-glm", "lockstep serve --model models/countdown-glm --port 0",
                     "lockstep serve --model models/countdown-glm --host 0.0.0.0 --api-key-file keys.txt --tls-certificate chain.pem --tls-key key.pem",
                     "lockstep serve --deploy v7=models/countdown-glm --deploy v8=models/countdown-glm --route chat=v7:95,v8:5"});
  const auto with_training = [&] { table.refused("without --training", [&training] { return !training; }); };
  add_model_option(table, runtime);  // or the first --deploy is it
  add_device_options(table, runtime);
  add_ranks_option(table, &runtime.ranks);
  add_transport_options(table, processes);
  add_deploy_options(
      table, deploy, [&training] { return training; }, [&net] { return !net.key_file.empty() || has_key_in_environment(); });
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
  table.choice("frozen-base", &frozen_base, {"none", "int4", "fp8", "mxfp8", "mxfp4"},
               "Quantise the base's weights to this format and freeze them; adapters train over them. Short for --profile cpu-FORMAT-base");
  table.choice("frozen-layers", &frozen_layers, {"linear", "experts"},
               "Which weights --frozen-base quantises: all linear layers, or only experts (--profile cpu-FORMAT-experts)");
  table.refused("without --frozen-base", [&frozen_base] { return frozen_base == "none"; });
  table.inputs("adapter", &adapters, "NAME=DIR", "A PEFT adapter of the model, which clients select by its name");
  table.input("adapter-folder", &adapter_folder, "DIR", "Adapters in this folder may be loaded while the server runs (POST /v1/load_lora_adapter)");
  table.integer("max-adapters", &serving.adapters.most, 1, 1 << 16, "N", "Most named adapters loaded at once");
  table.refused("without --adapter or --adapter-folder", [&] { return adapters.empty() && adapter_folder.empty(); });
  add_follow_options(table, follow, publish);
  add_publish_options(table, publish, "Make every sampler's checkpoint a snapshot of the store, which servers take that follow the channel (hot load)");
  table.refused("without --training", [&training] { return !training; }, {"publish"});
  add_serve_training_options(table, trained);
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
  table.number("live-token-ms", &live_token_ms, 0, 60000, "X",
               "Longest gap between two tokens of a live answer, in milliseconds, that rollouts (service_tier flex, keys of class=rollouts, training clients' "
               "samples) may make by their rows in the same steps; live ones then go first. 0: classes share as --shares says (docs/tenants.md)");
  add_serve_http_options(table, net);
  profile.add_options(table);
  table.accept_config();
  if (!table.parse(arguments)) return kExitOk;

  if (processes.transport != "threads" && (!deploy.deploy.empty() || !deploy.folder.empty() || !deploy.state.empty()))
    throw UsageError(fmt::format("transport is {}, allowed with --deploy, --deploy-folder and --deploy-state is threads: over processes a server has one model",
                                 processes.transport));
  if (follow_processes(processes, runtime.isa)) return kExitOk;
  CommandLineDeployments deployed(deploy, runtime, name);
  if (!tool_format.empty() && !message_format.empty())
    throw UsageError(fmt::format("tool-format is {} and message-format is {}, allowed is one of the two", tool_format, message_format));
  if (frozen_base != "none") {
    if (runtime.profile != RuntimeSettings().profile)
      throw UsageError(fmt::format("frozen-base is {} and profile is {}, allowed is one of the two", frozen_base, runtime.profile));
    runtime.profile = fmt::format("cpu-{}-{}", frozen_base, frozen_layers == "experts" ? "experts" : "base");
  }
  check_follow(follow, training);
  check_publish(publish);
  const ClassShares class_shares = as_usage([&] { return parse_class_shares(shares); });
  const std::shared_ptr<KeyRing> ring = finish_http_options(net, table, training);
  serving.share_prefixes = share_prefixes == "all";
  serving.engine.live_token_seconds = live_token_ms / 1000;
  ShapeCatalog shapes = ShapeCatalog::published();
  for (const std::string& file : trained.shape_files) shapes.add(read_file(file, kMostShapeBytes), file);
  install_interrupt_handlers();
  if (!net.key_file.empty()) install_reload_handler();
  serving.adapters.root = adapter_folder;
  return_freed_memory();
  EngineOptions planned = serving.engine;
  if (!training) leave_training_ranks_out(runtime.ranks);
  planned.ranks = rank_layout(runtime.ranks);
  const ServingMemoryOptions wanted_memory{.megabytes = memory_megabytes,
                                           .training = training,
                                           .cache_bytes = cache_megabytes << 20,
                                           .beside_bytes = deployed.least_bytes(runtime, planned),
                                           .answer_bytes = http.max_held_bytes,
                                           .upload_bytes = net.body_megabytes << 20};
  const ServingMemory memory = admit_serving(runtime, planned, wanted_memory);
  serving.engine.cache_bytes = memory.cache_bytes;
  http.max_held_bytes = memory.answer_bytes;
  serving.adapters.ledger = memory.ledger;
  serving.response_bytes = static_cast<std::size_t>(memory.response_bytes);
  serving.grammar_bytes = static_cast<std::size_t>(memory.grammar_bytes());
  profile.begin(runtime);
  const auto executor = std::make_shared<Executor>(class_shares);
  const auto rates = access.rates = std::make_shared<RateLimits>();
  trained.options.count_tokens = serving.count_tokens = [rates](const std::string& key, std::int64_t tokens) { rates->use(key, tokens); };
  std::shared_ptr<GenerationService> service;
  std::shared_ptr<TrainingBase> base;
  std::int64_t model_positions = 0, position_bytes = 0;
  Followed followed;
  MemoryLedger::Claim spare;
  std::shared_ptr<WeightPool> pool;
  std::shared_ptr<WeightPool::Part> part;
  std::shared_ptr<Runtime> first;
  {
    OpenedModel opened = open_model(runtime);
    if ((!deploy.deploy.empty() || !deploy.folder.empty()) && opened.ranks.size() == 1 && opened.runtime->backend.device().kind() == BackendKind::cpu) {
      first = opened.runtime;
      pool = std::make_shared<WeightPool>(memory.ledger);
      part = pool->part("the server's own model", follow.follows() ? WeightPool::Claims::none : WeightPool::Claims::stays);
    }
    open_beside({.runtime = runtime});
    serving.engine.ranks = opened.ranks;
    serving.engine.lead = joined_mail();
    ServingModel model = serving_model(opened, 0, part.get());
    model_positions = opened.model->facts().max_positions;
    position_bytes = position_bytes_of(opened, serving.engine);
    model.executor = executor;
    if (follow.follows()) {
      followed = {opened.runtime, executor, model.weights, opened.reader, part};
      if (follow.swap_memory == "double")
        spare = memory.ledger->claim("spare weights", {}, loaded_bytes(*opened.model, opened.runtime->profile).weights,
                                     "a second copy of the weights (--swap-memory single needs none)");
    }
    if (training) opened.runtime->backend.set_pause_point(executor);
    add_served_defaults(model, runtime.model, {chat_template, message_format, tool_format, generation_config});
    if (!name.empty()) model.name = name;
    if (training) {
      base = std::make_shared<TrainingBase>();
      base->name = model.name;
      base->folder = std::filesystem::canonical(runtime.model).string();
      base->names = trained.aliases;
      if (!base->is_called(model.name)) base->names.push_back(model.name);
      base->folders = {runtime.model, base->folder};
      base->executor = model.executor;
      base->open_values = [runtime, executor, of = opened, weights = model.weights] {
        OpenedModel values = open_value_model(runtime);
        open_beside({.runtime = runtime, .values = true});
        share_weights(values, of, weights);
        values.runtime->backend.device().share_pool(of.runtime->backend.device());  // they compute in turns
        values.runtime->backend.set_pause_point(executor);
        return values;
      };
      base->weights = model.weights;
      base->options.ranks = opened.ranks;
      base->ledger = memory.ledger;
    }
    ServingOptions own = serving;  // of this runtime: deployments have others
    if (training) {
      own.engine.kept_forwards = kept_forwards_over(opened.ranks, trained.keep_forward, *opened.runtime, serving.engine.page_size, memory.ledger);
      base->options.kept_forwards = own.engine.kept_forwards;
    }
    service = std::make_shared<GenerationService>(std::move(model), own);
    if (training) base->opened = std::move(opened);
  }
  for (const std::string& adapter : adapters) {
    const std::size_t equals = adapter.find('=');
    if (equals == std::string::npos || equals + 1 == adapter.size()) throw UsageError(fmt::format("adapter is '{}', allowed is NAME=DIR", adapter));
    service->adapters().load(adapter.substr(0, equals), adapter.substr(equals + 1));
  }
  const auto opener = std::make_shared<DeploymentOpener>(DeploymentParts{.runtime = runtime,
                                                                         .serving = serving,
                                                                         .executor = executor,
                                                                         .ledger = memory.ledger,
                                                                         .pool = pool,
                                                                         .first = first,
                                                                         .cache_bytes = cache_megabytes << 20,
                                                                         .generation_config = generation_config,
                                                                         .prepare =
                                                                             [ring](GenerationService& one) {
                                                                               if (ring) Terms::set_streams(*ring->now(), one);
                                                                             },
                                                                         .folder = deploy.folder,
                                                                         .sleeps = deploy.scale_to_zero_minutes > 0});
  const std::shared_ptr<Deployments> deployments = deployed.open(service,
                                                                 !follow.follows()                ? Follows::no
                                                                 : follow.swap_memory == "double" ? Follows::beside
                                                                                                  : Follows::in_place,
                                                                 *opener);
  std::shared_ptr<TrainingService> trainers;
  TrainingRouteOptions route_options;
  if (training) {
    TrainingServiceOptions options = service_options(trained);
    if (!publish.place.empty()) add_publishing(publish, follow.quorum, base->opened, executor, runtime.model, options);
    trainers = std::make_shared<TrainingService>(base, service, options);
    constexpr std::int64_t kTokenSeconds = 3600;  // of clients that ask unasked
    route_options.tokens = access.tokens =
        std::make_shared<const TokenSigner>(options.state / "token-key", trained.token_seconds > 0 ? trained.token_seconds : kTokenSeconds);
    route_options.wants_tokens = trained.token_seconds > 0;
    route_options.tls = !http.tls_certificate.empty();
    raise_open_files();
  }
  http.max_bodies_bytes = memory.upload_bytes;
  http.bodies_key_share = trained.options.key_share;
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
  const PageOptions page{
      .places = {.roots = {runs}}, .title = service->model().name(), .playground = true, .device = true, .gates = !training, .fleet = follow.follows()};
  const std::shared_ptr<ChannelFleet> fleet = follow.follows() ? open_fleet(follow) : nullptr;
  std::unique_ptr<Follower> follower;  // made once the port is known
  const auto measured = std::make_shared<std::atomic<const Follower*>>(nullptr);
  if (fleet)
    http.state->add_metrics([measured](PrometheusText& text) {
      if (const Follower* one = *measured) one->append_metrics(text);
    });
  const ModelDeploymentRouteOptions changes = deployed.route_options(access.keys, deploy.folder.empty() ? nullptr : opener);
  const auto streams = route_options.streams = std::make_shared<HeldStreams>();
  const std::shared_ptr<HostedDeployments> hosted = training ? nullptr : open_hosted_deployments(follow, deploy.state, trained.options.key_share);
  const auto add_more = [&](Routes& routes) {
    if (!training) add_model_deployment_routes(routes, deployments, changes);
    add_page_routes(routes, page);
    DeviceSources device{service, executor};
    if (trainers) {
      device.models_waiting = [trainers] { return trainers->waiting_reasons().models_waiting(); };
      device.kept_rows = [trainers] { return kept_row_figures(*trainers); };
    }
    add_device_route(routes, std::move(device));
    if (fleet) add_fleet_routes(routes, fleet, hosted);
    if (!training) add_model_completions(routes, deployments, streams, hosted);
    if (!training) add_deployment_routes(routes, replica_deployments(hosted, fleet, deployments));
    if (trainers) add_training_routes(routes, trainers, shapes, route_options);
    if (!store.empty()) add_store_routes(routes, store);
  };
  const auto server = serve_openai(std::shared_ptr<const Deployments>(deployments), http, std::move(access), add_more, streams);
  if (fleet) {
    follower = start_follower(follow, service, followed, fleet, server->url(), server->port(), deployed.gate_of(service->model().name()));
    followed = {};
    *measured = follower.get();
  }
  deployed.start_followers(server->url(), server->port());
  // In one write: who waits for the first line may close its end after it.
  std::fputs(
      fmt::format("listening on {}\n{}\n", server->url(), context_sentence(service->limits(), model_positions, position_bytes, serving.engine.max_sequences))
          .c_str(),
      stdout);
  std::fflush(stdout);
  log_info("serving", {{"model", service->model().name()}, {"profile", service->model().profile_name()}, {"url", server->url()}});
  std::string lost;
  while (!interrupted() && (lost = lost_process()).empty()) {
    if (take_reload()) reload_keys(*ring, net.key_file, terms);
    std::this_thread::sleep_for(std::chrono::milliseconds(50));
  }
  log_info("stopping", {{"open_requests", service->bounds().open()}});
  if (follower) follower->stop();
  deployed.stop_followers();
  server->stop();
  if (trainers) trainers->stop();
  deployments->stop();
  if (profile.on()) executor->drain();  // of what was under way
  profile.say(stderr);
  if (lost.empty()) lost = lost_process();
  if (!lost.empty()) fail(ErrorCode::io, "{}; the ranks that are left cannot serve", lost);
  log_info("stopped");
  return kExitOk;
}

}  // namespace lockstep
