#include "losses/loss_graph.h"

#include <algorithm>
#include <limits>
#include <map>
#include <regex>

#include "base/error.h"
#include "losses/graph_operations.h"

namespace lockstep {
namespace {
using GraphJson = nlohmann::ordered_json;
constexpr std::size_t kMostInputs = 16, kMostNodes = 2000, kMostValues = 50'000, kMostMetrics = 64, kLongestText = 256;
constexpr int kDeepest = 16;

std::string shown_text(std::string text) {
  constexpr std::size_t kShown = 80;
  if (text.size() > kShown) text = text.substr(0, kShown) + "...";
  for (char& c : text)
    if (static_cast<unsigned char>(c) < ' ' || static_cast<unsigned char>(c) > 126) c = '?';
  return text;
}

[[noreturn]] void wrong_graph(const std::string& where, const std::string& problem) { fail(ErrorCode::invalid_argument, "{} {}", where, problem); }

std::string text_of(const GraphJson& json, const char* field, const std::string& where) {
  const auto found = json.is_object() ? json.find(field) : json.end();
  if (!json.is_object() || found == json.end() || !found->is_string()) wrong_graph(where, fmt::format("has no string '{}'", field));
  const auto text = found->get<std::string>();
  if (text.empty() || text.size() > kLongestText)
    wrong_graph(where, fmt::format("has a '{}' of {} bytes, allowed are 1 to {}", field, text.size(), kLongestText));
  return text;
}

// Arguments as the wire has them: scalars for themselves, lists, and objects of one key.
class ArgumentReader {
 public:
  explicit ArgumentReader(const std::map<std::string, std::size_t>& nodes) : nodes_(nodes) {}

  GraphValue read(const GraphJson& json, const std::string& where, int depth = 0) {
    if (depth > kDeepest) wrong_graph(where, fmt::format("has arguments nested more than {} deep", kDeepest));
    if (++count_ > kMostValues) wrong_graph(where, fmt::format("makes more than {} arguments of the whole graph", kMostValues));
    if (json.is_null()) return {};
    if (json.is_boolean()) return GraphValue::of(json.get<bool>());
    if (json.is_number_unsigned() && json.get<std::uint64_t>() > static_cast<std::uint64_t>(std::numeric_limits<std::int64_t>::max()))
      wrong_graph(where, "has an integer argument beyond 64 bits");
    if (json.is_number_integer()) return GraphValue::of(json.get<std::int64_t>());
    if (json.is_number()) return GraphValue::of(json.get<double>());
    if (json.is_string()) return text_value(GraphValue::Kind::text, json, where);
    if (json.is_array()) return items(GraphValue::Kind::list, json, where, depth);
    if (json.size() != 1) wrong_graph(where, "has an argument that is an object of several keys, allowed is one key that says its type");
    const std::string& type = json.begin().key();
    const GraphJson& value = json.begin().value();
    if (type == "ref") return reference(value, where);
    if (type == "tuple") return items(GraphValue::Kind::tuple, value, where, depth);
    if (type == "dict") return dictionary(value, where, depth);
    if (type == "slice") {
      GraphValue slice = items(GraphValue::Kind::slice, value, where, depth);
      if (slice.items.size() != 3) wrong_graph(where, fmt::format("has a slice of {} parts, allowed are 3", slice.items.size()));
      return slice;
    }
    if (type == "ellipsis") return {.kind = GraphValue::Kind::ellipsis};
    if (type == "float") {
      const GraphValue text = text_value(GraphValue::Kind::text, value, where);
      if (text.text == "inf") return GraphValue::of(std::numeric_limits<double>::infinity());
      if (text.text == "-inf") return GraphValue::of(-std::numeric_limits<double>::infinity());
      if (text.text == "nan") return GraphValue::of(std::numeric_limits<double>::quiet_NaN());
      wrong_graph(where, fmt::format("has a float '{}', allowed are inf, -inf, nan", shown_text(text.text)));
    }
    if (type == "dtype" || type == "device" || type == "layout" || type == "memory_format") return text_value(GraphValue::Kind::constant, value, where);
    wrong_graph(where, fmt::format("has an argument of type '{}', allowed are ref, tuple, dict, slice, ellipsis, float, dtype, device, layout, memory_format",
                                   shown_text(type)));
  }

 private:
  GraphValue text_value(GraphValue::Kind kind, const GraphJson& json, const std::string& where) {
    if (!json.is_string() || json.get_ref<const std::string&>().size() > kLongestText)
      wrong_graph(where, fmt::format("has an argument that is no string of up to {} bytes", kLongestText));
    return {.kind = kind, .text = json.get<std::string>()};
  }
  GraphValue items(GraphValue::Kind kind, const GraphJson& json, const std::string& where, int depth) {
    if (!json.is_array()) wrong_graph(where, "has a tuple or slice that is no list");
    GraphValue value{.kind = kind};
    for (const GraphJson& one : json) value.items.push_back(read(one, where, depth + 1));
    return value;
  }
  GraphValue dictionary(const GraphJson& json, const std::string& where, int depth) {
    if (!json.is_object()) wrong_graph(where, "has a dict that is no object");
    GraphValue value{.kind = GraphValue::Kind::dictionary};
    for (const auto& [key, one] : json.items()) {
      value.keys.push_back(key);
      value.items.push_back(read(one, where, depth + 1));
    }
    return value;
  }
  GraphValue reference(const GraphJson& json, const std::string& where) {
    const GraphValue name = text_value(GraphValue::Kind::text, json, where);
    const auto found = nodes_.find(name.text);
    if (found == nodes_.end()) wrong_graph(where, fmt::format("refers to the node '{}', allowed are nodes before it", shown_text(name.text)));
    return {.kind = GraphValue::Kind::reference, .integer = static_cast<std::int64_t>(found->second)};
  }

  const std::map<std::string, std::size_t>& nodes_;
  std::size_t count_ = 0;
};

void read_end(LossGraph& graph, const GraphValue& returned, const std::string& where) {
  static const std::regex kMetricName("custom/[a-z0-9_./-]{1,64}:(sum|mean)");
  if (!returned.is_sequence() || returned.items.size() != 2 || !returned.items[0].is(GraphValue::Kind::reference) ||
      !returned.items[1].is(GraphValue::Kind::dictionary))
    wrong_graph(where, "does not return (loss, metrics): a tensor and a dict of tensors");
  graph.loss = static_cast<std::size_t>(returned.items[0].integer);
  const GraphValue& metrics = returned.items[1];
  if (metrics.items.size() > kMostMetrics) wrong_graph(where, fmt::format("returns {} metrics, allowed are {}", metrics.items.size(), kMostMetrics));
  for (std::size_t i = 0; i < metrics.items.size(); ++i) {
    if (metrics.keys[i].size() > kLongestText || !std::regex_match(metrics.keys[i], kMetricName))
      wrong_graph(where, fmt::format("returns a metric '{}', allowed are custom/NAME:sum and custom/NAME:mean, NAME of 1 to 64 of a-z 0-9 _ . / -",
                                     shown_text(metrics.keys[i])));
    if (!metrics.items[i].is(GraphValue::Kind::reference)) wrong_graph(where, fmt::format("returns a metric '{}' that is no node", metrics.keys[i]));
    graph.metrics.emplace_back(metrics.keys[i], static_cast<std::size_t>(metrics.items[i].integer));
  }
}
}  // namespace

LossGraph read_loss_graph(const GraphJson& inputs, const GraphJson& json) {
  LossGraph graph;
  if (!inputs.is_array() || inputs.empty() || inputs.size() > kMostInputs) wrong_graph("inputs", fmt::format("is no list of 1 to {} inputs", kMostInputs));
  for (const GraphJson& one : inputs) {
    const std::string where = fmt::format("inputs[{}]", graph.inputs.size());
    LossGraph::Input input{text_of(one, "name", where)};
    const auto rank = one.find("rank");
    if (rank == one.end() || !rank->is_number_integer() || (input.rank = rank->get<std::int64_t>()) < 0 || input.rank > 2)
      wrong_graph(where, "has no 'rank' from 0 to 2");
    for (const LossGraph::Input& other : graph.inputs)
      if (other.name == input.name) wrong_graph(where, fmt::format("is '{}' again", shown_text(input.name)));
    graph.inputs.push_back(std::move(input));
  }
  if (graph.inputs[0].name != "logprobs" || graph.inputs[0].rank == 0) wrong_graph("inputs[0]", "is not logprobs of rank 1 or 2");
  if (!json.is_object() || !json.contains("nodes") || !json["nodes"].is_array()) wrong_graph("graph", "has no list 'nodes'");
  if (const auto format = json.find("format"); format != json.end() && *format != 1)
    fail(ErrorCode::unsupported, "graph.format is {}, allowed is 1", shown_text(format->dump()));
  const GraphJson& nodes = json["nodes"];
  if (nodes.size() > kMostNodes) wrong_graph("graph", fmt::format("has {} nodes, allowed are {}", nodes.size(), kMostNodes));

  std::map<std::string, std::size_t> known;
  ArgumentReader reader(known);
  bool ended = false;
  for (const GraphJson& one : nodes) {
    const std::string at = fmt::format("graph.nodes[{}]", graph.nodes.size());
    GraphNode node;
    node.name = text_of(one, "name", at);
    node.target = text_of(one, "target", at);
    const std::string op = text_of(one, "op", at), where = fmt::format("node '{}' ({})", shown_text(node.name), shown_text(node.target));
    if (ended) wrong_graph(where, "comes after the output");
    const auto given = [&](const char* name) { return one.contains(name) && !one[name].is_null() && !one[name].empty(); };
    if ((op == "placeholder" && (given("args") || given("kwargs"))) || (op == "output" && given("kwargs")))
      wrong_graph(where, op == "output" ? "is the output with kwargs, allowed is one argument"
                                        : "is a placeholder with args or kwargs, allowed are none: an input has no default");
    if (op == "placeholder") {
      const std::size_t number = graph.nodes.size();
      if (number >= graph.inputs.size() || node.target != graph.inputs[number].name)
        wrong_graph(where, fmt::format("is no input, allowed is {}",
                                       number < graph.inputs.size() ? "'" + shown_text(graph.inputs[number].name) + "' here" : "no more of them"));
    } else if (graph.nodes.size() < graph.inputs.size()) {
      wrong_graph(where, fmt::format("comes before the input '{}'", shown_text(graph.inputs[graph.nodes.size()].name)));
    } else {
      if (const auto arguments = one.find("args"); arguments != one.end()) {
        if (!arguments->is_array()) wrong_graph(where, "has args that are no list");
        for (const GraphJson& argument : *arguments) node.arguments.push_back(reader.read(argument, where));
      }
      if (const auto arguments = one.find("kwargs"); arguments != one.end()) {
        if (!arguments->is_object()) wrong_graph(where, "has kwargs that are no object");
        for (const auto& [key, argument] : arguments->items()) node.named.emplace_back(key, reader.read(argument, where));
      }
      if (op == "output") {
        if (node.arguments.size() != 1) wrong_graph(where, "has not one argument");
        read_end(graph, node.arguments[0], where);
        ended = true;
        continue;
      }
      if (op != "call_function" && op != "call_method")
        fail(ErrorCode::unsupported, "{} is a {}, allowed are placeholder, call_function, call_method, output", where, shown_text(op));
      node.operation = find_graph_operation(node.target, op == "call_method");
      if (!node.operation) {
        const std::vector<std::string> names = graph_operation_names();
        const std::string bare = node.target.substr(node.target.rfind('.') + 1);
        fail(ErrorCode::unsupported, "{} calls an operation that custom losses do not have{}; allowed are {}", where, did_you_mean(shown_text(bare), names),
             fmt::join(names, ", "));
      }
    }
    if (!known.emplace(node.name, graph.nodes.size()).second) wrong_graph(where, "has the name of an earlier node");
    graph.nodes.push_back(std::move(node));
  }
  if (!ended) wrong_graph("graph", "has no output node");
  return graph;
}

}  // namespace lockstep
