// `lockstep shapes list|show|resolve`: the catalog of training shapes.
#include <algorithm>
#include <cstdio>

#include "base/file.h"
#include "cli/command_kinds.h"
#include "cli/commands.h"
#include "cli/common_options.h"
#include "planning/shape_resolver.h"

namespace lockstep {
namespace {
void add_shapes_option(OptionTable& table, std::vector<std::string>* files) {
  table.inputs("shapes", files, "FILE", "More shapes, beside the published ones (docs/training-shapes.md)");
}

ShapeCatalog read_catalog(const std::vector<std::string>& files) {
  ShapeCatalog catalog = ShapeCatalog::published();
  for (const std::string& file : files) catalog.add(read_file(file, kMostShapeBytes), file);
  return catalog;
}

std::string hardware_text(const TrainingShape& shape) {
  return shape.accelerators > 0 ? fmt::format("{} x {}", shape.accelerators, shape.accelerator) : "not published";
}
std::string context_text(const TrainingShape& shape) { return shape.context > 0 ? fmt::format("{}", shape.context) : "not published"; }

void print_memory(const ShapeCatalog& catalog, const TrainingShape& shape, const std::optional<ShapeFit>& fit) {
  const auto line = [](std::string_view name, const std::string& value) { std::printf("  %-14s%s\n", std::string(name).c_str(), value.c_str()); };
  if (!fit) {
    line("layout", shape.layout ? shape.layout->text() : "not known");
    line("memory", "not said: the dimensions, the context or the hardware are not known");
    return;
  }
  line("layout", fmt::format("{}{}", fit->plan.layout.text(), shape.layout ? "" : "  (computed: the first that fits; none is published)"));
  const bool whole = catalog.accelerator(shape.accelerator).memory == 0;
  const double scale = whole ? 1e6 : 1e9;
  const char* unit = whole ? "MB" : "GB";
  for (int p = 0; p < kShapeParts; ++p)
    if (const std::int64_t bytes = fit->plan.memory.bytes[static_cast<std::size_t>(p)]; bytes > 0)
      line(kShapePartNames[static_cast<std::size_t>(p)], fmt::format("{:9.2f} {}", static_cast<double>(bytes) / scale, unit));
  line("a device", fmt::format("{:9.2f} {}{}", static_cast<double>(fit->plan.memory.total()) / scale, unit,
                               whole ? "; `lockstep plan` counts it to the byte"
                                     : fmt::format(" of {:.0f}, {}", static_cast<double>(catalog.accelerator(shape.accelerator).memory) / 1e9,
                                                   fit->fits ? "fits" : "does not fit")));
  if (fit->plan.optimizer_on_host)
    line("on the host", fmt::format("{:9.2f} {}, of the optimizer, a device", static_cast<double>(fit->plan.memory.host) / scale, unit));
}

void print_shape(const ShapeCatalog& catalog, const TrainingShape& shape, const std::optional<ShapeFit>& fit) {
  const ShapeModel& model = catalog.model(shape.model);
  std::printf("%s\n", shape.id.c_str());
  const auto line = [](const char* name, const std::string& value) { std::printf("  %-14s%s\n", name, value.c_str()); };
  line("model", fmt::format("{} ({}){}", model.name, model.architecture, model.sizes() ? fmt::format(", {} parameters", model.sizes()->parameters()) : ""));
  if (!model.source.empty()) line("its sizes", model.source);
  line("mode", fmt::format("{} ({})", shape_mode_name(shape.mode), trainer_mode(shape.mode)));
  line("context", context_text(shape));
  line("hardware", hardware_text(shape));
  line("source", shape.source);
  print_memory(catalog, shape, fit);
}

int list_shapes(const Arguments& arguments) {
  std::string model, mode = "all";
  std::vector<std::string> files;
  bool json = false;
  OptionTable table("shapes list", "The training shapes of the catalog: which model is trained how, on what.",
                    {"lockstep shapes list", "lockstep shapes list --model Qwen/Qwen3-8B --mode policy"});
  table.text("model", &model, "NAME", "Only shapes of this model, by any of its names");
  table.choice("mode", &mode, {"all", "policy", "lora", "reference"}, "Full-parameter training, an adapter, or forward only");
  add_shapes_option(table, &files);
  add_json_option(table, &json, "Print a JSON object a line");
  if (!table.parse(arguments)) return kExitOk;

  const ShapeCatalog catalog = read_catalog(files);
  const std::string wanted = model.empty() ? "" : catalog.model(model).id;
  if (!json) std::printf("%-38s%-24s%-11s%9s  %s\n", "shape", "model", "mode", "context", "hardware");
  for (const TrainingShape& shape : catalog.shapes()) {
    if ((!wanted.empty() && shape.model != wanted) || (mode != "all" && mode != shape_mode_name(shape.mode))) continue;
    if (json) std::printf("%s\n", shape_json(catalog, shape, catalog.fit(shape)).dump().c_str());
    else
      std::printf("%-38s%-24s%-11s%9s  %s\n", shape.id.c_str(), catalog.model(shape.model).name.c_str(), std::string(shape_mode_name(shape.mode)).c_str(),
                  shape.context > 0 ? context_text(shape).c_str() : "?", hardware_text(shape).c_str());
  }
  return kExitOk;
}

int show_shape(const Arguments& arguments) {
  std::string id;
  std::vector<std::string> files;
  std::int64_t rank = 16;
  bool json = false;
  OptionTable table("shapes show", "One training shape: its hardware, and what it takes of each device by what it is for.",
                    {"lockstep shapes show qwen3-8b-128k", "lockstep shapes show kimi-k2p5-lora-256k --lora-rank 32"});
  table.positional("ID", &id, true, "The shape");
  table.integer("lora-rank", &rank, 1, 256, "N", "Rank of the adapter whose memory is shown");
  add_shapes_option(table, &files);
  add_json_option(table, &json);
  if (!table.parse(arguments)) return kExitOk;

  const ShapeCatalog catalog = read_catalog(files);
  const TrainingShape& shape = catalog.shape(id);
  const std::optional<ShapeFit> fit = catalog.fit(shape, rank);
  if (json) std::printf("%s\n", shape_json(catalog, shape, fit).dump().c_str());
  else print_shape(catalog, shape, fit);
  return kExitOk;
}

int resolve_shapes(const Arguments& arguments) {
  ShapeRequest request;
  std::vector<std::string> files;
  bool json = false;
  OptionTable table("shapes resolve",
                    "The training shape that does for a model with the fewest accelerators, and why no other; or what is missing, with exit code 1.",
                    {"lockstep shapes resolve --model Qwen/Qwen3-8B --context 100000",
                     "lockstep shapes resolve --model 'Kimi K2.5' --lora-rank 16 --accelerator B300 --count 8"});
  table.text("model", &request.model, "NAME", "The model, by any of its names").required();
  table.integer("context", &request.context, 0, std::int64_t{1} << 40, "N", "Tokens of the longest sequence; 0: any");
  table.integer("lora-rank", &request.lora_rank, 0, 256, "N", "Rank of an adapter; 0: full-parameter training");
  table.flag("forward-only", &request.forward_only, "A reference model, which is not trained");
  table.text("accelerator", &request.accelerator, "TYPE", "The available accelerator (B200, H200, CPU); left out: any");
  table.integer("count", &request.accelerators, 0, 65536, "N", "How many are available; 0: as many as needed");
  add_shapes_option(table, &files);
  add_json_option(table, &json);
  if (!table.parse(arguments)) return kExitOk;
  if (request.forward_only && request.lora_rank > 0) throw UsageError("--forward-only and --lora-rank exclude each other: a reference has no adapter");

  const ShapeCatalog catalog = read_catalog(files);
  const ShapeChoice choice = resolve_shape(catalog, request);
  if (json) {
    std::printf("%s\n", choice_json(catalog, choice).dump().c_str());
  } else {
    if (choice.shape) {
      std::printf("%s\n\n", choice.why.c_str());
      print_shape(catalog, *choice.shape, choice.fit);
    }
    if (!choice.others.empty()) std::printf("\nlarger ones that would do: %s\n", fmt::format("{}", fmt::join(choice.others, ", ")).c_str());
    if (!choice.rejected.empty()) std::printf("%snot chosen:\n", choice.shape ? "\n" : "");
    for (const RejectedShape& r : choice.rejected) {
      std::printf("  %s\n", r.id.c_str());
      for (const std::string& reason : r.reasons) std::printf("    %s\n", reason.c_str());
    }
  }
  if (!choice.shape) fail(ErrorCode::not_found, "{}", choice.why);
  return kExitOk;
}
}  // namespace

int shapes_command(const Arguments& arguments) {
  return run_kind("shapes", {{"list", list_shapes}, {"show", show_shape}, {"resolve", resolve_shapes}},
                  "usage: lockstep shapes list|show|resolve [options]\n\n"
                  "  lockstep shapes list\n"
                  "  lockstep shapes show qwen3-8b-128k\n"
                  "  lockstep shapes resolve --model Qwen/Qwen3-8B --context 100000\n\n"
                  "`lockstep shapes list --help` and so on list every option.\n",
                  arguments);
}

}  // namespace lockstep
