// Decodes ForwardBackwardRequest (tinker_public.proto) as it arrives: one tensor of a datum at a time, never the whole message in memory.
#include <bit>
#include <cstring>

#include "api/percent.h"
#include "api/tinker/body_head.h"
#include "api/tinker/proto_codec.h"
#include "api/tinker/proto_reader.h"
#include "api/tinker/sparse.h"

namespace lockstep {
namespace {
static_assert(std::endian::native == std::endian::little);
constexpr const char* kBatchMessage = "ForwardBackwardRequest";
constexpr int kFloat32 = 1, kInt64 = 2;  // of DType

std::string utf8_field(ProtoReader& reader) {
  std::string text;
  reader.read(text);
  if (!is_utf8(text)) reader.broken();
  return text;
}

template <class T>
std::vector<T> elements_of(std::string&& bytes, const std::string& where) {
  if (bytes.size() % sizeof(T) != 0) fail(ErrorCode::invalid_argument, "{} has {} bytes, allowed is a multiple of {}", where, bytes.size(), sizeof(T));
  ClientWork::take(bytes.size());
  std::vector<T> values(bytes.size() / sizeof(T));
  if (!values.empty()) std::memcpy(values.data(), bytes.data(), bytes.size());
  std::string().swap(bytes);
  return values;
}

// A Tensor as it arrives: the field that says what its bytes mean may come after them.
struct RawTensor {
  std::string dense, values, crow_indices, col_indices;
  bool sparse = false;
  int dtype = 0;
  std::vector<std::int64_t> shape;
  std::size_t dimensions = 0;  // those beyond what a shape may have are counted, not stored

  void add_dimension(std::uint64_t n) {
    if (++dimensions <= 3) shape.push_back(static_cast<std::int64_t>(n));
  }
  // `unknown`: called for a field that the message of that name does not have.
  template <class Unknown>
  void read(ProtoReader& reader, const Unknown& unknown) {
    if (reader.is(1, ProtoReader::bytes)) {
      reader.read(dense);
      sparse = false;
      values.clear(), crow_indices.clear(), col_indices.clear();
    } else if (reader.is(2, ProtoReader::bytes)) {
      sparse = true;
      dense.clear();
      reader.message([&] {
        if (reader.is(1, ProtoReader::bytes)) reader.read(values);
        else if (reader.is(2, ProtoReader::bytes)) reader.read(crow_indices);
        else if (reader.is(3, ProtoReader::bytes)) reader.read(col_indices);
        else unknown("SparseCsr");
      });
    } else if (reader.is(3, ProtoReader::varint)) {
      dtype = static_cast<int>(reader.number());
    } else if (reader.is(4, ProtoReader::varint)) {
      add_dimension(reader.number());
    } else if (reader.is(4, ProtoReader::bytes)) {
      reader.packed([&](std::uint64_t n) { add_dimension(n); });
    } else {
      unknown("Tensor");
    }
  }
};

NamedTensor tensor_of(RawTensor&& raw, const std::string& where, DenseRoom& room) {
  NamedTensor tensor;
  if (raw.dimensions > 2) fail(ErrorCode::invalid_argument, "{} has {} dimensions, allowed are 1 and 2", where, raw.dimensions);
  tensor.shape = std::move(raw.shape);
  tensor.is_float = raw.dtype == kFloat32;
  if (!tensor.is_float && raw.dtype != kInt64) fail(ErrorCode::invalid_argument, "{} has dtype {}, allowed are FLOAT32 and INT64", where, raw.dtype);
  const auto read = [&]<class T>(std::vector<T>& into) {
    if (raw.sparse) {
      room.take(checked_size(tensor.shape, where), where);
      into = dense_of_csr(elements_of<T>(std::move(raw.values), where + ".values"),
                          elements_of<std::int64_t>(std::move(raw.crow_indices), where + ".crow_indices"),
                          elements_of<std::int64_t>(std::move(raw.col_indices), where + ".col_indices"), tensor.shape, where);
    } else {
      into = elements_of<T>(std::move(raw.dense), where);
    }
    settle_shape(tensor.shape, into.size(), where);
  };
  if (tensor.is_float) read(tensor.floats);
  else read(tensor.integers);
  return tensor;
}

class BatchReader {
 public:
  explicit BatchReader(ByteSource& source) : reader_(source, kBatchMessage) {}
  BatchMessage read() {
    while (reader_.field()) top_field();
    for (auto& [name, value] : config_) out_.batch.loss.config[name] = value;
    for (auto& [name, value] : config_v2_) out_.batch.loss.config[name] = std::move(value);
    if (out_.error) out_.batch.data.clear();
    return std::move(out_);
  }

 private:
  void top_field() {
    if (reader_.is(1, ProtoReader::bytes)) out_.model = utf8_field(reader_);
    else if (reader_.is(2, ProtoReader::varint)) out_.sequence = static_cast<std::int32_t>(reader_.number());
    else if (reader_.is(3, ProtoReader::bytes)) add_datum();
    else if (reader_.is(4, ProtoReader::bytes)) out_.batch.loss.name = utf8_field(reader_);
    else if (reader_.is(5, ProtoReader::bytes))
      entry(config_, [&](double& value) {
        if (reader_.is(2, ProtoReader::fixed64)) value = std::bit_cast<double>(reader_.word());
        else unknown("loss_fn_config");
      });
    else if (reader_.is(6, ProtoReader::varint)) out_.batch.forward_only = reader_.number() != 0;
    else if (reader_.is(7, ProtoReader::bytes))
      entry(config_v2_, [&](LossValue& value) {
        value = 0.0;
        if (!reader_.is(2, ProtoReader::bytes)) return unknown("loss_fn_config_v2");
        reader_.message([&] {
          if (reader_.is(1, ProtoReader::fixed64)) value = std::bit_cast<double>(reader_.word());
          else if (reader_.is(2, ProtoReader::bytes)) value = utf8_field(reader_);
          else unknown("LossConfigValue");
        });
      });
    else unknown(kBatchMessage);
  }

  // A field that a message does not have would be without effect, so it is the batch's error. (The message is read to its end: its model and
  // number may stand behind.)
  void unknown(const char* message) {
    noted([&] { fail(ErrorCode::invalid_argument, "{} has a field {} that is not known", message, reader_.number_of_field()); });
    reader_.skip();
  }

  // An entry of a map: its key is field 1; `read` gets the other fields.
  template <class V, class Read>
  void entry(std::map<std::string, V>& map, const Read& read) {
    std::string key;
    V value{};
    reader_.message([&] {
      if (reader_.is(1, ProtoReader::bytes)) key = utf8_field(reader_);
      else read(value);
    });
    ClientWork::take(kEntryBytes);
    map[key] = std::move(value);
  }

  // Keeps the first error of a datum; the rest must still be well-formed, and is otherwise ignored.
  void add_datum() {
    if (out_.error) return reader_.skip();
    ClientWork::take(sizeof(TrainingDatum));
    TrainingDatum datum;
    const std::string where = fmt::format("data[{}]", out_.batch.data.size());
    std::size_t chunks = 0;
    reader_.message([&] {
      if (reader_.is(1, ProtoReader::bytes)) add_chunk(datum, where, chunks++);
      else if (reader_.is(2, ProtoReader::bytes)) add_tensor(datum, where);
      else if (reader_.is(3, ProtoReader::bytes) || reader_.is(4, ProtoReader::bytes)) reader_.skip();  // *_spans: of the list of harmless fields
      else unknown("Datum");
    });
    out_.batch.data.push_back(std::move(datum));
  }
  // Runs `work`, which checks values: its error becomes the batch's. An error in the message's form ends the decoding instead.
  template <class Work>
  void noted(const Work& work) {
    if (out_.error) return;
    try {
      work();
    } catch (const Error& e) {
      if (e.code() != ErrorCode::invalid_argument && e.code() != ErrorCode::unsupported) throw;
      out_.error = e;
    }
  }
  void add_chunk(TrainingDatum& datum, const std::string& where, std::size_t number) {
    std::string tokens;
    bool is_text = false;
    reader_.message([&] {
      if (reader_.is(1, ProtoReader::bytes)) {
        is_text = true;
        reader_.message([&] {
          if (reader_.is(1, ProtoReader::bytes)) reader_.read(tokens);
          else unknown("EncodedTextChunk");
        });
      } else if (reader_.is(2, ProtoReader::bytes) || reader_.is(3, ProtoReader::bytes)) {
        is_text = false;
        reader_.skip();
      } else {
        unknown("Chunk");
      }
    });
    noted([&] {
      const std::string name = fmt::format("{}.model_input.chunks[{}]", where, number);
      if (!is_text) fail(ErrorCode::unsupported, "{} is no text; the model takes tokens only", name);
      const std::vector<std::int32_t> ids = elements_of<std::int32_t>(std::move(tokens), name + ".tokens");
      datum.tokens.insert(datum.tokens.end(), ids.begin(), ids.end());
    });
  }
  void add_tensor(TrainingDatum& datum, const std::string& where) {
    std::string name;
    RawTensor raw;
    reader_.message([&] {
      if (reader_.is(1, ProtoReader::bytes)) name = utf8_field(reader_);
      else if (reader_.is(2, ProtoReader::bytes)) reader_.message([&] { raw.read(reader_, [&](const char* message) { unknown(message); }); });
      else unknown("loss_fn_inputs");
    });
    ClientWork::take(kEntryBytes + name.size());
    noted([&] { datum.inputs[name] = tensor_of(std::move(raw), fmt::format("{}.loss_fn_inputs.{}", where, name), room_); });
  }

  static constexpr std::size_t kEntryBytes = sizeof(NamedTensor) + 96;  // with what a map keeps beside it
  ProtoReader reader_;
  BatchMessage out_;
  std::map<std::string, double> config_;
  std::map<std::string, LossValue> config_v2_;
  DenseRoom room_;
};
}  // namespace

BatchMessage decode_batch(ByteSource& source) { return BatchReader(source).read(); }

std::optional<std::string> proto_model(ByteSource& source) {
  ProtoReader reader(source, kBatchMessage);
  while (reader.field()) {
    if (reader.is(1, ProtoReader::bytes)) return utf8_field(reader);
    reader.skip();
  }
  return std::nullopt;
}

}  // namespace lockstep
