// The engine as a program: what bindings.cpp is to Python in the same process, this is to a process that cannot load it,
// because it was built for another architecture and runs in an emulator (tests/contracts/foreign.py is the other end).
// A request on standard input holds all that a kernel matrix is made of and one operation; the answer goes to standard
// output. Numbers as they lie in memory, little-endian on both sides; a sequence after its length in 64 bits.
#include <array>
#include <cstdio>
#include <cstdlib>
#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "dispatch.hpp"
#include "engine.hpp"

using namespace halfgp;

namespace {

template <class T>
void receive(T* to, std::size_t count) {
  if (std::fread(to, sizeof(T), count, stdin) != count) std::exit(EXIT_FAILURE);
}
template <class T>
T receive() {
  T value;
  receive(&value, 1);
  return value;
}
template <class T>
std::vector<T> receive_many() {
  std::vector<T> values(receive<std::uint64_t>());
  receive(values.data(), values.size());
  return values;
}
std::string receive_text() {
  const std::vector<char> text = receive_many<char>();
  return {text.begin(), text.end()};
}

template <class T>
void send(const std::vector<T>& values) {
  const std::uint64_t count = values.size();
  std::fwrite(&count, sizeof count, 1, stdout);
  std::fwrite(values.data(), sizeof(T), values.size(), stdout);
}

KernelProgram receive_program() {
  std::vector<LeafDescription> leaves(receive<std::uint64_t>());
  for (LeafDescription& leaf : leaves) {
    const auto [profile, features, shared, path, products] = receive<std::array<std::int32_t, 5>>();
    const auto [shape, least, factor, step] = receive<std::array<double, 4>>();
    leaf = {static_cast<Profile>(profile), features, shared != 0, shape, least, static_cast<Path>(path), products != 0,
            {receive_many<double>(), factor, step}};
  }
  auto nodes = receive_many<Node>();
  auto constants = receive_many<double>();
  const auto [scale, negligible] = receive<std::array<double, 2>>();
  return {leaves, std::move(nodes), std::move(constants), scale, negligible};
}

std::shared_ptr<const Points> receive_points(const KernelProgram& program, bool single) {
  const auto near = receive_many<std::uint8_t>();
  std::vector<std::vector<double>> features(program.leaves.size());
  std::vector<const double*> tables;
  for (auto& table : features) {
    table = receive_many<double>();
    tables.push_back(table.data());
  }
  const auto order = receive_many<std::int64_t>();
  const Runs held{order.empty() ? nullptr : order.data(), receive<std::int64_t>()};
  return std::make_shared<Points>(static_cast<std::int64_t>(near.size()), near.data(), tables, program.leaves,
                                  program.packing, single, has_support(program.view()), held);
}

template <class U>
void serve_product(const KernelMatrix& matrix, bool within, std::size_t rows, const Execution& execution) {
  const auto count = receive<std::int32_t>();
  const auto vectors = receive_many<U>();
  const auto diagonal = receive_many<double>();
  std::vector<U> results(within ? vectors.size() : rows * static_cast<std::size_t>(count));
  const Columns<const U> from{vectors.data(), count, count, 1};
  const Columns<U> to{results.data(), count, count, 1};
  if (within)
    matrix.product_within(from, diagonal.data(), to, execution);
  else
    matrix.product(from, diagonal.empty() ? nullptr : diagonal.data(), to, execution);
  send(results);
}

template <class U>
void serve_block(const KernelMatrix& matrix, std::size_t rows, std::size_t columns, const Execution& execution) {
  std::vector<U> entries(rows * columns);
  matrix.block(entries.data(), execution);
  send(entries);
}

// Gradients in the features, by leaf, where the flags want them.
std::vector<std::vector<double>> feature_tables(const std::vector<Leaf>& leaves, std::size_t points) {
  const auto wanted = receive_many<std::uint8_t>();
  std::vector<std::vector<double>> tables(leaves.size());
  for (std::size_t l = 0; l < leaves.size(); ++l)
    if (wanted[l]) tables[l].resize(points * static_cast<std::size_t>(leaves[l].features));
  return tables;
}

std::vector<double*> pointers(std::vector<std::vector<double>>& tables) {
  std::vector<double*> result;
  for (auto& table : tables) result.push_back(table.empty() ? nullptr : table.data());
  return result;
}

template <class U>
void serve_gradient(const KernelMatrix& matrix, const std::vector<Leaf>& leaves, std::size_t rows, std::size_t columns,
                    const Execution& execution) {
  const auto count = receive<std::int32_t>();
  const auto left = receive_many<U>(), right = receive_many<U>();
  auto row_tables = feature_tables(leaves, rows), column_tables = feature_tables(leaves, columns);
  const GradientSums sums =
      matrix.gradient(left.data(), right.data(), count, pointers(row_tables), pointers(column_tables), execution);
  send(std::vector<double>{sums.root});
  send(sums.constants);
  send(sums.shapes);
  for (const auto& table : sums.scales) send(table);
  for (const auto& table : row_tables) send(table);
  for (const auto& table : column_tables) send(table);
}

template <class U>
void serve(const std::string& operation, const KernelMatrix& matrix, const std::vector<Leaf>& leaves, std::size_t rows,
           std::size_t columns, const Execution& execution) {
  if (operation == "product") return serve_product<U>(matrix, false, rows, execution);
  if (operation == "product_within") return serve_product<U>(matrix, true, rows, execution);
  if (operation == "block") return serve_block<U>(matrix, rows, columns, execution);
  if (operation == "share_skipped") return send(std::vector<double>{matrix.share_skipped()});
  if (operation == "tiles") return send(std::vector<double>{static_cast<double>(matrix.tiles())});
  if (operation == "dropped") return send(std::vector<double>{matrix.dropped(execution)});
  if (operation == "gradient") return serve_gradient<U>(matrix, leaves, rows, columns, execution);
  std::exit(EXIT_FAILURE);
}

void serve_request() {
  const Target* target = find_target(receive_text());
  if (!target) std::exit(EXIT_FAILURE);
  const bool single = receive<std::uint8_t>();
  const KernelProgram program = receive_program();
  const auto rows = receive_points(program, single);
  const auto columns = receive<std::uint8_t>() ? receive_points(program, single) : nullptr;
  KernelMatrix matrix(*target, single, program, rows, columns);
  const auto stored = static_cast<Stored>(receive<std::int32_t>());
  const Execution execution{receive<std::int32_t>(), nullptr};
  const bool skip_zeros = receive<std::uint8_t>();
  const auto index = receive<std::int64_t>(), count = receive<std::int64_t>();
  matrix.choose_tiles(skip_zeros, {index, count}, execution);
  if (stored != Stored::none) matrix.store(stored, execution);
  const std::string operation = receive_text();
  const auto n = static_cast<std::size_t>(rows->count()), m = static_cast<std::size_t>((columns ? columns : rows)->count());
  if (receive<std::uint8_t>())
    serve<float>(operation, matrix, program.leaves, n, m, execution);
  else
    serve<double>(operation, matrix, program.leaves, n, m, execution);
}

}  // namespace

// First come the names of the instruction sets, the best last, and whether each gains by fixed point; then answers.
int main() {
  std::string names;
  std::vector<std::uint8_t> fixed_point;
  for (const Target* target : supported_targets()) {
    names.append(target->name).append(" ");
    fixed_point.push_back(target->fixed_point);
  }
  send(std::vector<char>(names.begin(), names.end()));
  send(fixed_point);
  for (;;) {
    std::fflush(stdout);
    const int next = std::fgetc(stdin);
    if (next == EOF) return EXIT_SUCCESS;
    std::ungetc(next, stdin);
    serve_request();
  }
}
