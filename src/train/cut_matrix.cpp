#include "train/cut_matrix.h"

#include <algorithm>

#include "base/byte_record.h"

namespace lockstep {

namespace {
bool by_outputs(ParameterSplit split) { return split == ParameterSplit::outputs || split == ParameterSplit::vocabulary; }

// One rank's part, and where it stands in the whole.
struct MatrixPart {
  Parameter shape;
  std::int64_t first_output = 0, first_input = 0;
  std::vector<std::vector<float>> images;  // gradient, master, moments
};

// f(offset in the whole image, offset in the part's) for every element.
template <class F>
void each_element(const Parameter& whole, const MatrixPart& part, const F& f) {
  for (std::int64_t g = 0; g < part.shape.count; ++g)
    for (std::int64_t n = 0; n < part.shape.outputs; ++n)
      for (std::int64_t k = 0; k < part.shape.inputs; ++k)
        f(static_cast<std::size_t>(whole.offset(g, part.first_output + n, part.first_input + k)), static_cast<std::size_t>(part.shape.offset(g, n, k)));
}

// Of all ranks, in the order of their outputs or inputs; and the shape that these make.
std::vector<MatrixPart> gathered(Communicator& tensor, const Parameter& own, const std::vector<std::vector<float>>& images, Parameter& whole) {
  ByteWriter mine;
  for (const std::int64_t size : {own.count, own.outputs, own.inputs}) mine.value(size);
  for (const std::vector<float>& image : images) mine.values(image);
  std::vector<MatrixPart> parts;
  whole = own;
  whole.count = 0;
  (by_outputs(own.split) ? whole.outputs : whole.inputs) = 0;
  for (const std::string& record : tensor.gather_host(mine.bytes())) {
    ByteReader in(record);
    MatrixPart& part = parts.emplace_back();
    part.shape = own;
    for (std::int64_t* size : {&part.shape.count, &part.shape.outputs, &part.shape.inputs}) *size = in.value<std::int64_t>();
    for (std::size_t i = 0; i < images.size(); ++i) part.images.push_back(in.values<float>());
    if (part.shape.size() == 0) part.shape.count = 0;
    whole.count = std::max(whole.count, part.shape.count);
    std::int64_t& joined = by_outputs(own.split) ? whole.outputs : whole.inputs;
    (by_outputs(own.split) ? part.first_output : part.first_input) = joined;
    joined += by_outputs(own.split) ? part.shape.outputs : part.shape.inputs;
  }
  return parts;
}
}  // namespace

bool cuts_matrices(ParameterSplit split) { return by_outputs(split) || split == ParameterSplit::inputs || split == ParameterSplit::columns; }

void step_cut_matrix(Backend& backend, Communicator& tensor, const Parameter& own, const ParameterRole& role, int moments, Stepper& stepper,
                     const StepViews& views) {
  if (backend.device().counting()) return;
  Stream& stream = backend.stream();
  std::vector<View> of_state = {views.gradient, views.master};
  for (int m = 0; m < moments; ++m) of_state.push_back(views.moments[m]);
  std::vector<std::vector<float>> images(of_state.size());
  for (std::size_t i = 0; own.size() > 0 && i < of_state.size(); ++i) images[i] = stream.read(of_state[i]).get();
  Parameter whole;
  const std::vector<MatrixPart> parts = gathered(tensor, own, images, whole);
  if (whole.size() == 0) return;  // other data-parallel ranks step it
  std::vector<Buffer> joined;
  for (std::size_t i = 0; i < of_state.size(); ++i) {
    std::vector<float> image(static_cast<std::size_t>(whole.size()), 0.0f);
    for (const MatrixPart& part : parts) each_element(whole, part, [&](std::size_t to, std::size_t from) { image[to] = part.images[i][from]; });
    joined.push_back(backend.device().upload(image, 1, whole.size(), MemoryCategory::workspace));
  }
  StepViews of_whole;
  of_whole.gradient = joined[0].view();
  of_whole.master = of_whole.master_out = joined[1].view();
  for (int m = 0; m < moments; ++m) of_whole.moments[m] = joined[static_cast<std::size_t>(m) + 2].view();
  stepper.move(whole, role, of_whole);
  if (own.size() == 0) return;
  const MatrixPart& mine = parts[static_cast<std::size_t>(tensor.rank())];
  const auto stepped = [&](const View& view) {
    const std::vector<float> image = stream.read(view).get();
    std::vector<float> part(static_cast<std::size_t>(own.size()), 0.0f);
    each_element(whole, mine, [&](std::size_t from, std::size_t to) { part[to] = image[from]; });
    return part;
  };
  for (int m = 0; m < moments; ++m) stream.write(views.moments[m], stepped(of_whole.moments[m]));
  const std::vector<float> master = stepped(of_whole.master);
  stream.write(views.master_out, master);
  if (views.compute_out) stream.write(views.compute_out, master);
}

}  // namespace lockstep
