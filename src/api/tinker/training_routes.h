// Routes of the training protocols, and what their handlers get: the request's owner, its body, how errors are returned, and which of the server's
// threads reads it. A body may have only the fields that its route names; for a numbered operation the error becomes its result. Any thread.
//   TrainingRoutes routes(table, service); routes.post("join", fields, [](const TrainingCall& call) { ... call.json(); });
#pragma once
#include <chrono>
#include <functional>
#include <memory>

#include "api/errors.h"
#include "api/routes.h"
#include "api/tinker/wire_fields.h"
#include "base/bounded_json.h"
#include "host/training_service.h"

namespace lockstep {

// One request and where its answer goes.
struct TrainingCall {
  ApiRequest& request;
  std::shared_ptr<Responder> out;
  TrainingService& service;
  std::string owner;
  std::chrono::steady_clock::time_point came = std::chrono::steady_clock::now();  // before it waited to be read
  const JsonFields* fields = nullptr;                                             // of the route's body; null: the handler checks them

  bool is_protobuf() const;
  bool is_short() const { return is_short(request); }  // the body is small and not compressed: read in about a millisecond
  static bool is_short(const ApiRequest& request);
  // Whether the client is Fireworks' package: a few answers differ.
  bool speaks_fireworks() const;
  std::unique_ptr<ByteSource> body() const;  // decompressed as it is read; RequestError above the limit
  // The body's object. RequestError if it is none or has an unknown field; UnknownFieldOfOperation for the latter in a numbered operation.
  TrainingJson json(const JsonLimits& limits = {}) const;
  // Frees the body from which `batch` was decoded, and counts the batch's memory instead as long as it lives. RequestError when it is too much.
  void keep(TrainingBatch& batch) const;
  void answer(const TrainingJson& json, int status = 200) const;
  void answer_future(const std::string& request_id, const std::string& model = {}) const;
  // Answers an operation of a model that has a sequence number: submit(model, sequence) returns the request id. A RequestError of submit()
  // becomes that operation's result, since its number is used up; except not_found, and a missing model or number, which are errors.
  template <class Submit>
  void numbered(const TrainingJson& json, const Submit& submit) const {
    const std::string model = required_text(json, "model_id");
    const std::int64_t sequence = required_integer(json, "seq_id");
    std::string id;
    try {
      id = submit(model, sequence);
    } catch (const RequestError& e) {
      if (e.code() == ErrorCode::not_found) throw;
      id = service.lanes().refuse(owner, model, sequence, e);
    }
    answer_future(id, model);
  }
  // A field that is stored unchanged; {} when absent. RequestError for one that is larger than the service keeps.
  TrainingJson metadata_field(const TrainingJson& json, const std::string& name) const;
  // A header's text; empty where there is none. RequestError for one that is no text of at most 256 bytes.
  std::string text_header(std::string_view name) const;
  // Whether the client is a program on the server's machine, and no proxy whose headers say that it asks for others.
  bool from_this_machine() const;
};

// An unknown field in an operation that has a model and a sequence number; the number is used up.
struct UnknownFieldOfOperation : RequestError {
  UnknownFieldOfOperation(const RequestError& of, std::string its_model, std::int64_t its_sequence)
      : RequestError(of.code(), of.param(), of.message()), model(std::move(its_model)), sequence(its_sequence) {}
  std::string model;
  std::int64_t sequence;
};

class TrainingRoutes {
 public:
  using Handler = std::function<void(const TrainingCall&)>;

  TrainingRoutes(Routes& routes, std::shared_ptr<TrainingService> service);
  // Adds `path` below /api/v1/ under every prefix that the protocols have; the prefix of a trainer job is for its key alone. `fields`: those of the
  // body; a route without them has a body without fields.
  void post(const std::string& path, JsonFields fields, Handler handler) { add("POST", path, std::move(fields), std::move(handler)); }
  // For routes that are done at once, without the disk, while their clients wait: their pool has no long bodies and no writes to disk.
  void post_quick(const std::string& path, JsonFields fields, Handler handler) { add("POST", path, std::move(fields), std::move(handler), true); }
  void add(const std::string& method, const std::string& path, JsonFields fields, Handler handler, bool quick = false) {
    add_under_prefixes({method, path, std::make_shared<const JsonFields>(std::move(fields)), {}, true, quick}, handler);
  }
  void add(const std::string& method, const std::string& path, Handler handler) { add(method, path, JsonFields(), std::move(handler)); }
  // For a route whose body has no field; `query`: of known_query().
  void add_with_query(const std::string& method, const std::string& path, std::vector<std::string> query, Handler handler) {
    add_under_prefixes({method, path, std::make_shared<const JsonFields>(), std::move(query)}, handler);
  }
  // The same at a path below the server's root, whose errors have the form {"error": {...}} alone.
  void add_at_root(const std::string& method, const std::string& path, JsonFields fields, Handler handler, std::vector<std::string> query = {}) {
    add_row({method, path, std::make_shared<const JsonFields>(std::move(fields)), std::move(query)}, std::move(handler));
  }
  void add_at_root(const std::string& method, const std::string& path, Handler handler, std::vector<std::string> query = {}) {
    add_at_root(method, path, JsonFields(), std::move(handler), std::move(query));
  }
  // For a body that its handler's own decoder checks. `draining_status`: as Route has it.
  void add_decoded(const std::string& method, const std::string& path, Handler handler, int draining_status = 503) {
    Row row{method, path, nullptr};
    row.draining_status = draining_status;
    add_row(std::move(row), std::move(handler));
  }
  // The same without an API key, for paths that contain a secret themselves.
  void add_open(const std::string& method, const std::string& path, Handler handler) { add_row({method, path, nullptr, {}, false}, std::move(handler)); }

 private:
  struct Row {
    std::string method, path;
    std::shared_ptr<const JsonFields> fields;
    std::vector<std::string> query = {};
    bool needs_key = true, quick = false, of_job = false;
    int draining_status = 503;
  };
  void add_under_prefixes(const Row& row, const Handler& handler);
  void add_row(Row row, Handler handler);
  Routes& routes_;
  std::shared_ptr<TrainingService> service_;
};

// A result in JSON, in the form in which Futures store it.
Outcome json_outcome(const TrainingJson& json);

}  // namespace lockstep
