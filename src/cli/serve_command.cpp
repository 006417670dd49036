// `lockstep serve`: a model behind OpenAI's API until Ctrl-C or SIGTERM.
#include <cstdio>
#include <thread>

#include "base/log.h"
#include "base/signals.h"
#include "cli/commands.h"
#include "cli/common_options.h"
#include "http/openai_server.h"

namespace lockstep {

int serve_command(const Arguments& arguments) {
  RuntimeSettings runtime;
  HttpOptions http;
  ServingOptions serving;
  std::string name;
  std::int64_t cache_megabytes = serving.engine.cache_bytes >> 20;
  OptionTable table("serve", "Serves a model over HTTP: GET /v1/models, GET /healthz, POST /v1/completions. Ctrl-C or SIGTERM ends it: running requests finish.",
                    {"lockstep serve --model models/countdown-glm", "lockstep serve --model models/countdown-glm --port 0"});
  add_runtime_options(table, runtime);
  table.text("host", &http.host, "ADDRESS", "Address to listen on; 0.0.0.0: every interface, without any authentication");
  table.integer("port", &http.port, 0, 65535, "N", "0: any that is free; the line printed says which");
  table.text("name", &name, "NAME", "The model's name in requests (default: the folder's name)");
  table.integer("max-open", &serving.max_open, 1, 1 << 20, "N", "Requests that may be open; more are answered with 429");
  table.integer("cache-megabytes", &cache_megabytes, 1, 1 << 24, "N", "Memory of the key-value cache");
  table.number("stop-seconds", &http.stop_seconds, 0, 3600, "X", "What running requests get to finish when the server stops");
  table.accept_config();
  if (!table.parse(arguments)) return kExitOk;

  install_interrupt_handlers();
  serving.engine.cache_bytes = cache_megabytes << 20;
  std::shared_ptr<GenerationService> service;
  {
    const OpenedModel opened = open_model(runtime);
    ServingModel model = serving_model(opened);
    if (!name.empty()) model.name = name;
    service = std::make_shared<GenerationService>(std::move(model), serving);
  }  // the masters are not needed any more
  const auto server = serve_openai(service, http);
  std::printf("listening on %s\n", server->url().c_str());
  std::fflush(stdout);
  log_info("serving", {{"model", service->name()}, {"profile", service->profile_name()}, {"url", server->url()}});
  while (!interrupted()) std::this_thread::sleep_for(std::chrono::milliseconds(50));
  log_info("stopping", {{"open_requests", service->open()}});
  server->stop();
  service->stop();
  log_info("stopped");
  return kExitOk;
}

}  // namespace lockstep
