// A server for tests of clients (tests/api/test_calls.py): the model behind it says, token by token, exactly what the last message
// holds, by a grammar of that one text. From there on all is the product's: message parser, deltas, JSON, HTTP. The family that
// is to be understood is chat_template_kwargs.format. Built with the tests (src/http/folder.cmake).
//   said_server MODEL_FOLDER      -> "listening on http://127.0.0.1:PORT"; ends with its stdin
#include <cstdio>
#include <iostream>

#include "api/errors.h"
#include "api/openai/answer_run.h"
#include "api/openai/chat_request.h"
#include "api/openai/native_parser.h"
#include "api/routes.h"
#include "http/server.h"
#include "serving/loading.h"

namespace lockstep {
namespace {
void say(const std::shared_ptr<GenerationService>& service, const ApiRequest& request, const std::shared_ptr<Responder>& responder) {
  ChatRequest chat = decode_chat(request.body);
  const std::string said = chat.prompt.messages.back().at("content");
  const MessageFormat format = message_format_by_name(chat.prompt.template_arguments.at("format").get<std::string>());
  const auto grammar = service->model().grammars().of_part(GrammarPart::literal(said));
  AnswerOrder order;
  order.completion = order_of(chat.sampling, 0, "top_logprobs");
  order.completion.prompts.push_back({service->model().tokenizer().encode("a", true), "messages"});
  order.completion.special = SpecialText::shown;
  order.model = chat.sampling.model;
  order.stream = chat.sampling.stream;
  order.completion.make_constraint = [grammar] { return make_constraint(grammar); };
  order.make_parser = [format, types = std::make_shared<const ArgumentTypes>(chat.prompt.tools)] {
    return std::make_unique<NativeParser>(format, types, false);
  };
  auto writer = std::make_unique<ChatWriter>(service->model().tokenizer(), order.shape);
  std::make_shared<AnswerRun>(service, std::move(order), std::move(writer), responder)->start();
}
}  // namespace
}  // namespace lockstep

int main(int argc, char** argv) {
  using namespace lockstep;
  if (argc != 2) return std::fprintf(stderr, "usage: said_server MODEL_FOLDER\n"), 2;
  const auto service = std::make_shared<GenerationService>(serving_model(open_model({.model = argv[1], .threads = 1})));
  const auto routes = std::make_shared<Routes>();
  routes->add({"POST", "/v1/chat/completions", [service](const ApiRequest& request, const std::shared_ptr<Responder>& out) { say(service, request, out); }});
  HttpServer server(routes, {.port = 0});
  std::printf("listening on %s\n", server.url().c_str());
  std::fflush(stdout);
  while (std::cin.get() != std::char_traits<char>::eof()) {
  }
  server.stop();
  service->stop();
}
