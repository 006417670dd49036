// Which parameters of a model are adapted, and what the adapter's tensors are called.
#include <algorithm>
#include <set>

#include "base/error.h"
#include "model/adapter.h"

namespace lockstep {

namespace {
bool chosen(AdapterKind kind, const AdapterSettings& s) {
  return (kind == AdapterKind::attention && s.attention) || (kind == AdapterKind::mlp && s.mlp) || (kind == AdapterKind::unembedding && s.unembedding);
}

// The PEFT name of a file tensor's adapter; a tied table is adapted as the head.
std::string module_of(const FileTensor& file, const Parameter& first) { return first.tied ? "lm_head" : file.name.substr(0, file.name.rfind(".weight")); }
// How ranks cut A, and B, of a weight that they cut like this. Matrices may share one A, which each of them reads whole.
ParameterSplit split_of_a(ParameterSplit base, bool by_item) {
  if (base == ParameterSplit::inputs) return base;
  return by_item && base == ParameterSplit::experts ? base : ParameterSplit::whole;
}
ParameterSplit split_of_b(ParameterSplit base) { return base == ParameterSplit::inputs ? ParameterSplit::whole : base; }
}  // namespace

AdapterLayout::AdapterLayout(const AdapterLayout& whole, Manifest shares) : settings_(whole.settings_), manifest_(std::move(shares)), places_(whole.places_) {}

AdapterLayout::AdapterLayout(const Manifest& model, const AdapterSettings& settings) : settings_(settings), places_(model.parameters().size()) {
  if (settings.rank < 1 || settings.rank > 256) fail(ErrorCode::invalid_argument, "rank of an adapter is {}, allowed is 1 to 256", settings.rank);
  if (!(settings.alpha > 0 && settings.alpha <= 1e6))
    fail(ErrorCode::invalid_argument, "alpha of an adapter is {}, allowed is above 0 to 1000000", settings.alpha);
  if (!settings.attention && !settings.mlp && !settings.unembedding)
    fail(ErrorCode::invalid_argument, "an adapter of nothing: attention, mlp and unembedding are all false; allowed is at least one true");
  const std::int64_t rank = settings.rank;
  std::int64_t last = 0;  // segment: a tied table is adapted as the head
  for (const Parameter& p : model.parameters()) last = std::max(last, p.segment);
  for (const FileTensor& file : tensors_by_layer(model)) {
    const Parameter& first = model.parameter(file.pieces[0].parameter);
    if (!chosen(first.adapted, settings)) continue;
    const std::string module = "base_model.model." + module_of(file, first);
    FileTensor a{module + ".lora_A.weight", {rank, file.columns()}, false, {}}, b{module + ".lora_B.weight", {file.rows(), rank}, false, {}};
    // The matrices of one file tensor have the same input and share A: keys and values of kv_b, whose product with W is by head.
    ParameterId shared = -1;
    for (const Piece& piece : file.pieces) {
      const Parameter& base = model.parameter(piece.parameter);
      Place& place = places_[static_cast<std::size_t>(piece.parameter)];
      const std::int64_t inputs = piece.transposed ? base.outputs : base.inputs, outputs = piece.transposed ? base.inputs : base.outputs;
      const bool by_item = base.count > 1 && file.pieces.size() == 1;  // experts
      if (place.b < 0) {
        if (shared < 0) {
          shared = manifest_.add({base.name + " (A)", ParameterLayout::packed, by_item ? base.count : 1, rank, inputs});
          manifest_.split(split_of_a(base.split, by_item), {shared});
        }
        place.a = shared;
        place.b = manifest_.add({base.name + " (B)", ParameterLayout::packed, base.count, outputs, rank});
        manifest_.split(split_of_b(base.split), {place.b});
        manifest_.set_segment(shared, base.tied ? last : base.segment);  // A, and every B of the file tensor so far
      }
      if (a.pieces.empty()) a.pieces.push_back({place.a, by_item ? piece.item : 0, 0, rank, false});
      b.pieces.push_back({place.b, piece.item, piece.row_begin, piece.rows, false});
    }
    manifest_.add_file(std::move(a));
    manifest_.add_file(std::move(b));
  }
}

void AdapterLayout::check_fits(const Manifest& model) const {
  const std::vector<Parameter>& parameters = model.parameters();
  bool fits = places_.size() == parameters.size();
  for (std::size_t i = 0; fits && i < places_.size(); ++i) {
    if (places_[i].a < 0) continue;
    const Parameter &p = parameters[i], &a = manifest_.parameter(places_[i].a), &b = manifest_.parameter(places_[i].b);
    const bool plain = a.inputs == p.inputs && b.outputs == p.outputs, transposed = a.inputs == p.outputs && b.outputs == p.inputs;
    fits = b.count == p.count && (plain || transposed);
  }
  if (!fits) fail(ErrorCode::invalid_argument, "the adapter was made for another model: its matrices have other shapes; allowed are adapters of this one");
}

std::vector<std::string> AdapterLayout::modules() const {
  std::set<std::string> names;
  for (const FileTensor& file : manifest_.files()) {
    const std::string module = file.name.substr(0, file.name.rfind(".lora_"));
    names.insert(module.substr(module.rfind('.') + 1));
  }
  return {names.begin(), names.end()};
}

}  // namespace lockstep
