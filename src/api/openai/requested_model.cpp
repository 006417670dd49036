#include "api/openai/requested_model.h"

#include <fmt/format.h>

#include <nlohmann/json.hpp>

namespace lockstep {
namespace {
// The parser's events; false ends it.
class ModelFieldEvents : public nlohmann::json_sax<nlohmann::json> {
 public:
  explicit ModelFieldEvents(const std::function<bool(const std::string&)>& asks_who) : asks_who_(asks_who) {}
  RequestedModel asked() const {
    for (const std::string* one : {&user_, &safety_, &cache_key_})
      if (!one->empty()) return {model_, *one};
    return {model_, {}};
  }

  bool null() override { return depth_ > 0; }
  bool boolean(bool) override { return depth_ > 0; }
  bool number_integer(std::int64_t) override { return depth_ > 0; }
  bool number_unsigned(std::uint64_t) override { return depth_ > 0; }
  bool number_float(double, const std::string&) override { return depth_ > 0; }
  bool binary(binary_t&) override { return false; }
  bool string(std::string& value) override {
    if (depth_ != 1) return depth_ > 0;
    if (field_ == "model") {
      model_ = value;
      return asks_who_(value);
    }
    for (const auto& [name, to] : {std::pair("user", &user_), std::pair("safety_identifier", &safety_), std::pair("prompt_cache_key", &cache_key_)})
      if (field_ == name) *to = value;
    return true;
  }
  bool key(std::string& value) override {
    if (depth_ == 1) field_ = value;
    return true;
  }
  bool start_object(std::size_t) override { return ++depth_, true; }
  bool end_object() override { return --depth_, true; }
  bool start_array(std::size_t) override { return depth_ > 0 && (++depth_, true); }
  bool end_array() override { return --depth_, true; }
  bool parse_error(std::size_t, const std::string&, const nlohmann::detail::exception&) override { return false; }

 private:
  const std::function<bool(const std::string&)>& asks_who_;
  int depth_ = 0;
  std::string field_, user_, safety_, cache_key_;
  std::optional<std::string> model_;
};
}  // namespace

RequestedModel read_requested_model(std::string_view body, const std::function<bool(const std::string& model)>& asks_who) {
  ModelFieldEvents events(asks_who);
  nlohmann::json::sax_parse(body.begin(), body.end(), &events);
  return events.asked();
}

std::string who_asks(const ApiRequest& request, const RequestedModel& asked) {
  for (const char* name : {"x-multi-turn-session-id", "x-session-affinity"})
    if (const std::string_view session = request.header(name); !session.empty()) return fmt::format("{}\nsession\n{}", request.owner, session);
  return asked.user.empty() ? std::string() : fmt::format("{}\nuser\n{}", request.owner, asked.user);
}

}  // namespace lockstep
