#include "http/openai_server.h"

namespace lockstep {

std::unique_ptr<HttpServer> serve_openai(std::shared_ptr<GenerationService> service, const HttpOptions& options) {
  return std::make_unique<HttpServer>(std::make_shared<OpenAiApi>(std::move(service)), options);
}

}  // namespace lockstep
