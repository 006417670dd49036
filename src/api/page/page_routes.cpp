#include "api/page/page_routes.h"

#include <charconv>

#include "api/errors.h"
#include "api/worker.h"
#include "base/hash.h"
#include "base/server_paths.h"
#include "runs/page_bundle.h"

namespace lockstep {
namespace {
constexpr const char* kPolicy =
    "default-src 'none'; script-src 'self'; style-src 'self'; connect-src 'self'; img-src 'self' data:; base-uri 'none'; form-action 'none'; "
    "frame-ancestors 'none'";

struct Page {
  PageOptions options;
  RunReader reader;
  Worker worker;
  explicit Page(PageOptions o) : options(std::move(o)), reader(options.places) {}
};

// Whether a list such as "gzip, br;q=0.5" has the word, and not with q=0.
bool accepts(std::string_view list, std::string_view word) {
  while (!list.empty()) {
    std::string_view item = list.substr(0, list.find(','));
    list.remove_prefix(std::min(list.size(), item.size() + 1));
    while (!item.empty() && item.front() == ' ') item.remove_prefix(1);
    const std::string_view name = item.substr(0, item.find_first_of("; "));
    if (name != word) continue;
    const std::size_t q = item.find("q=");
    return q == std::string_view::npos || item.substr(q + 2).find_first_not_of("0. ") != std::string_view::npos;
  }
  return false;
}

HeaderList common_headers() {
  return {{"X-Content-Type-Options", "nosniff"}, {"Referrer-Policy", "no-referrer"}, {"Cross-Origin-Resource-Policy", "same-origin"}};
}

ApiResponse file_response(const PageFile& file, const std::string& tag, const ApiRequest& request) {
  const bool gzipped = accepts(request.header("accept-encoding"), "gzip");
  const std::string own = gzipped ? "\"" + tag + "-gzip\"" : "\"" + tag + "\"";
  ApiResponse response;
  response.content_type = std::string(file.content_type);
  response.headers = common_headers();
  response.headers.insert(response.headers.end(),
                          {{"Content-Security-Policy", kPolicy}, {"Cache-Control", "no-cache"}, {"Vary", "Accept-Encoding"}, {"ETag", own}});
  if (request.header("if-none-match").find(own) != std::string_view::npos) {
    response.status = 304;
    return response;
  }
  if (gzipped) response.headers.emplace_back("Content-Encoding", "gzip");
  response.static_body = gzipped ? file.gzip : file.plain;
  return response;
}

std::int64_t integer_of(const ApiRequest& request, const char* name, std::int64_t otherwise) {
  const auto text = request.query_value(name);
  if (!text) return otherwise;
  std::int64_t value = 0;
  const auto end = std::from_chars(text->data(), text->data() + text->size(), value);
  if (end.ec != std::errc() || end.ptr != text->data() + text->size() || value < 0)
    throw RequestError(ErrorCode::invalid_argument, name, fmt::format("{} is '{}', allowed is an integer from 0 on", name, text->substr(0, 40)));
  return value;
}

// Removes paths: the files of a run's folder name places on the machine that made it.
void hide_paths(Json& json) {
  if (json.is_string()) json = without_server_paths(json.get<std::string>());
  else if (json.is_structured())
    for (Json& inner : json) hide_paths(inner);
}

using Ask = std::function<Json(const RunReader&, const ApiRequest&)>;

void answer(const std::shared_ptr<Page>& page, const Ask& ask, const ApiRequest& request, const std::shared_ptr<Responder>& responder) {
  // A plain pointer: the page outlives the work of its own worker.
  const bool taken = page->worker.post([page = page.get(), ask, request, responder] {
    try {
      ApiResponse response;
      Json told = ask(page->reader, request);
      for (const char* written : {"config", "result", "parity"})
        if (told.is_object() && told.contains(written)) hide_paths(told[written]);
      response.body = told.dump(-1, ' ', false, Json::error_handler_t::replace);
      response.headers = common_headers();
      response.headers.emplace_back("Cache-Control", "no-store");
      responder->send(std::move(response));
    } catch (const std::exception& e) {
      responder->send(error_response(e));
    }
  });
  if (!taken) throw Error(ErrorCode::resource_exhausted, "too many questions about runs are waiting");
}
}  // namespace

void add_page_routes(Routes& routes, PageOptions options) {
  const auto page = std::make_shared<Page>(std::move(options));
  for (const PageFile& file : page_files()) {
    const std::string tag = hex64(xxh3(file.plain.data(), file.plain.size()));
    const std::string path = file.name == "index.html" ? "/" : "/" + std::string(file.name);
    routes.add({"GET", path,
                [file, tag](const ApiRequest& request, const std::shared_ptr<Responder>& responder) { responder->send(file_response(file, tag, request)); },
                false, false, std::nullopt});
  }
  const auto add = [&](const char* path, Ask ask, std::vector<std::string> query = {}) {
    routes.add({.method = "GET",
                .path = path,
                .handler = [page, ask = std::move(ask)](const ApiRequest& request,
                                                        const std::shared_ptr<Responder>& responder) { answer(page, ask, request, responder); },
                .query = std::move(query)});
  };
  const auto run = [](const ApiRequest& request) { return std::string(request.parameter("run")); };
  const auto arm = [](const ApiRequest& request) { return request.query_value("arm").value_or(""); };
  const Json about{{"title", page->options.title},
                   {"playground", page->options.playground},
                   {"device", page->options.device},
                   {"gates", page->options.gates},
                   {"fleet", page->options.fleet}};
  add("/api/page", [about](const RunReader&, const ApiRequest&) { return about; });
  add("/api/runs", [](const RunReader& reader, const ApiRequest&) { return reader.list(); });
  add("/api/runs/{run}", [=](const RunReader& reader, const ApiRequest& request) { return reader.about(run(request)); });
  add("/api/runs/{run}/ranks", [=](const RunReader& reader, const ApiRequest& request) { return reader.ranks(run(request)); });
  add("/api/runs/{run}/metrics",
      [=](const RunReader& reader, const ApiRequest& request) {
        MetricsFrom from;
        from.from = integer_of(request, "from", 0);
        from.points = integer_of(request, "points", from.points);
        from.file = request.query_value("file").value_or("");
        return reader.metrics(run(request), arm(request), from);
      },
      {"arm", "from", "points", "file"});
  add("/api/runs/{run}/transcripts",
      [=](const RunReader& reader, const ApiRequest& request) {
        if (request.query_value("step")) return reader.transcripts(run(request), arm(request), integer_of(request, "step", 0));
        return reader.transcript_steps(run(request), arm(request));
      },
      {"arm", "step"});
}

}  // namespace lockstep
