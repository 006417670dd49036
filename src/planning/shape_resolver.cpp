#include "planning/shape_resolver.h"

#include <algorithm>
#include <tuple>

#include "base/error.h"

namespace lockstep {
namespace {
std::string mode_words(ShapeMode mode) {
  return mode == ShapeMode::policy ? "a policy trainer of all parameters" : mode == ShapeMode::lora ? "a LoRA trainer" : "a forward-only reference";
}
double decimal_gigabytes(std::int64_t bytes) { return static_cast<double>(bytes) / 1e9; }

std::string memory_words(const ShapeFit& fit, const Accelerator& accelerator) {
  const std::int64_t total = fit.plan.memory.total();
  const double usable = kUsableMemory * static_cast<double>(accelerator.memory);
  const std::string takes = fmt::format("{:.1f} of {:.1f} usable GB a device ({}{})", decimal_gigabytes(total), usable / 1e9, fit.plan.layout.text(),
                                        fit.plan.optimizer_on_host ? ", optimizer on the host" : "");
  return fit.fits ? "takes " + takes : fmt::format("does not fit in memory by {:.1f} GB a device: at least {}", decimal_gigabytes(total) - usable / 1e9, takes);
}

struct Candidate {
  TrainingShape shape;
  std::optional<ShapeFit> fit;
  std::vector<std::string> reasons;
};

Candidate judge_shape(const ShapeCatalog& catalog, const ShapeRequest& request, const Accelerator* there, const TrainingShape& listed) {
  Candidate c{.shape = listed};
  if (listed.mode != request.mode()) {
    c.reasons.push_back(fmt::format("it is {}, asked for is {}", mode_words(listed.mode), mode_words(request.mode())));
    return c;
  }
  if (listed.context == 0) c.shape.context = request.context;
  else if (listed.context < request.context) c.reasons.push_back(fmt::format("its context is {}, {} tokens are asked for", listed.context, request.context));
  if (listed.accelerators == 0) {
    if (!there || request.accelerators == 0) c.reasons.push_back("the hardware it needs is not published: say what there is (accelerator and count)");
    else if (c.shape.context == 0) c.reasons.push_back("its context is not published: say how many tokens (context)");
    if (!c.reasons.empty()) return c;
    c.shape.accelerator = there->id;
    c.shape.accelerators = request.accelerators;
    c.fit = catalog.fit(c.shape, request.lora_rank);
  } else {
    TrainingShape with = listed;  // on what there is
    with.context = std::max<std::int64_t>(request.context, 1);
    if (request.context == 0) with.context = listed.context;
    bool other = false;
    if (there && there->id != listed.accelerator) {
      c.reasons.push_back(fmt::format("it is for {}, there are {}", listed.accelerator, there->id));
      with.accelerator = there->id;
      other = true;
    }
    if (request.accelerators > 0 && request.accelerators < listed.accelerators) {
      c.reasons.push_back(fmt::format("it needs {} accelerators, {} are given", listed.accelerators, request.accelerators));
      with.accelerators = request.accelerators;
      other = true;
    }
    if (other) with.layout.reset();
    if (other && c.reasons.size() > 0) {
      // Beside that: whether what there is could hold the work at all.
      const std::optional<ShapeFit> fit = catalog.fit(with, request.lora_rank);
      const Accelerator& accelerator = catalog.accelerator(with.accelerator);
      if (fit && accelerator.memory > 0)
        c.reasons.push_back(fit->fits
                                ? fmt::format("on {} x {} the work {}, by the formula", with.accelerators, with.accelerator, memory_words(*fit, accelerator))
                                : memory_words(*fit, accelerator));
    }
    c.fit = catalog.fit(c.shape, request.lora_rank > 0 ? request.lora_rank : 16);
  }
  if (c.reasons.empty() && c.fit && !c.fit->fits) c.reasons.push_back(memory_words(*c.fit, catalog.accelerator(c.shape.accelerator)));
  return c;
}
}  // namespace

ShapeChoice resolve_shape(const ShapeCatalog& catalog, const ShapeRequest& request) {
  if (request.context < 0 || request.lora_rank < 0 || request.accelerators < 0)
    fail(ErrorCode::invalid_argument, "context, lora_rank and accelerators are numbers of at least 0");
  if (request.forward_only && request.lora_rank > 0)
    fail(ErrorCode::invalid_argument, "forward_only is set and lora_rank is {}, allowed is one of both: a reference has no adapter", request.lora_rank);
  const ShapeModel& model = catalog.model(request.model);
  const Accelerator* there = request.accelerator.empty() ? nullptr : &catalog.accelerator(request.accelerator);

  ShapeChoice choice;
  std::vector<Candidate> good;
  for (const TrainingShape& shape : catalog.shapes()) {
    if (shape.model != model.id) continue;
    Candidate c = judge_shape(catalog, request, there, shape);
    if (c.reasons.empty()) good.push_back(std::move(c));
    else choice.rejected.push_back({shape.id, std::move(c.reasons)});
  }
  std::stable_sort(good.begin(), good.end(), [](const Candidate& a, const Candidate& b) {
    return std::tie(a.shape.accelerators, a.shape.context) < std::tie(b.shape.accelerators, b.shape.context);
  });
  if (good.empty()) {
    const bool of_mode =
        std::any_of(catalog.shapes().begin(), catalog.shapes().end(), [&](const TrainingShape& s) { return s.model == model.id && s.mode == request.mode(); });
    choice.why = of_mode ? fmt::format("no training shape of {} does what is asked for", model.name)
                         : fmt::format("{} of {} is missing in the catalog: a file of shapes with mode = \"{}\" adds it", mode_words(request.mode()),
                                       model.name, shape_mode_name(request.mode()));
    return choice;
  }
  const Candidate& best = good.front();
  const Accelerator& accelerator = catalog.accelerator(best.shape.accelerator);
  choice.shape = best.shape;
  choice.fit = best.fit;
  choice.why = fmt::format("{}: {}, {} tokens{}, {} x {}{}{}", best.shape.id, mode_words(best.shape.mode), best.shape.context,
                           request.context > 0 ? fmt::format(" for the {} asked for", request.context) : "", best.shape.accelerators, best.shape.accelerator,
                           good.size() > 1 ? fmt::format(", the fewest of {} that would do", good.size()) : "",
                           best.fit && accelerator.memory > 0 ? ", " + memory_words(*best.fit, accelerator) : "");
  for (std::size_t i = 1; i < good.size(); ++i) choice.others.push_back(good[i].shape.id);
  return choice;
}

namespace {
nlohmann::ordered_json number_or_null(std::int64_t value) { return value > 0 ? nlohmann::ordered_json(value) : nlohmann::ordered_json(nullptr); }
}  // namespace

nlohmann::ordered_json shape_json(const ShapeCatalog& catalog, const TrainingShape& shape, const std::optional<ShapeFit>& fit) {
  const ShapeModel& model = catalog.model(shape.model);
  nlohmann::ordered_json json = {{"id", shape.id},
                                 {"model", model.id},
                                 {"name", model.name},
                                 {"architecture", model.architecture},
                                 {"mode", shape_mode_name(shape.mode)},
                                 {"trainer_mode", trainer_mode(shape.mode)},
                                 {"context", number_or_null(shape.context)},
                                 {"accelerator", shape.accelerator.empty() ? nlohmann::ordered_json(nullptr) : nlohmann::ordered_json(shape.accelerator)},
                                 {"accelerators", number_or_null(shape.accelerators)},
                                 {"nodes", number_or_null(shape.nodes())},
                                 {"source", shape.source},
                                 {"parameters", number_or_null(model.sizes() ? model.sizes()->parameters() : 0)},
                                 {"layout", nullptr},
                                 {"memory", nullptr}};
  const auto layout_json = [](const ShapeLayout& l) { return nlohmann::ordered_json{{"tp", l.tp}, {"pp", l.pp}, {"cp", l.cp}, {"ep", l.ep}}; };
  if (shape.layout) json["layout"] = layout_json(*shape.layout);
  if (fit) {
    const std::int64_t memory = catalog.accelerator(shape.accelerator).memory;
    if (!shape.layout) json["layout"] = layout_json(fit->plan.layout);
    json["layout"]["computed"] = !shape.layout;
    nlohmann::ordered_json& out = json["memory"];
    for (int p = 0; p < kShapeParts; ++p)
      out["bytes"][std::string(kShapePartNames[static_cast<std::size_t>(p)])] = fit->plan.memory.bytes[static_cast<std::size_t>(p)];
    out["total_bytes"] = fit->plan.memory.total();
    out["device_bytes"] = number_or_null(memory);
    out["optimizer_on_host"] = fit->plan.optimizer_on_host;
    out["host_bytes"] = fit->plan.memory.host;
    out["fits"] = fit->fits;
  }
  return json;
}

nlohmann::ordered_json choice_json(const ShapeCatalog& catalog, const ShapeChoice& choice) {
  nlohmann::ordered_json json = {{"shape", choice.shape ? shape_json(catalog, *choice.shape, choice.fit) : nlohmann::ordered_json(nullptr)},
                                 {"why", choice.why},
                                 {"others", choice.others}};
  json["rejected"] = nlohmann::ordered_json::array();
  for (const RejectedShape& r : choice.rejected) json["rejected"].push_back({{"id", r.id}, {"reasons", r.reasons}});
  return json;
}

}  // namespace lockstep
