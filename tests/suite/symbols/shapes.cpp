// A program of templates, virtual calls, lambdas and inlined functions for `suite symbols`. It computes for some seconds.
#include <algorithm>
#include <cstdint>
#include <cstdio>
#include <cstdlib>
#include <map>
#include <memory>
#include <numeric>
#include <string>
#include <vector>

namespace geometry {

struct Shape {
    virtual ~Shape() = default;
    virtual double area() const = 0;
};

template <typename Number> struct Square final : Shape {
    explicit Square(Number side) : side_(side) {}
    double area() const override { return static_cast<double>(side_ * side_); }
    Number side_;
};

struct Polygon final : Shape {
    explicit Polygon(std::vector<std::pair<double, double>> points) : points_(std::move(points)) {}
    double area() const override {
        double twice = 0;
        for (std::size_t i = 0; i < points_.size(); ++i) twice += cross(points_[i], points_[(i + 1) % points_.size()]);
        return twice / 2;
    }
    static double cross(const std::pair<double, double> &a, const std::pair<double, double> &b) {
        return a.first * b.second - b.first * a.second;
    }
    std::vector<std::pair<double, double>> points_;
};

} // namespace geometry

namespace {

std::uint64_t next(std::uint64_t &state) {
    state ^= state << 13;
    state ^= state >> 7;
    return state ^= state << 17;
}

template <typename Map> std::size_t count_words(Map &words, std::uint64_t &state) {
    for (int i = 0; i < 20000; ++i) ++words[std::to_string(next(state) % 5000)];
    return words.size();
}

double total_area(const std::vector<std::unique_ptr<geometry::Shape>> &shapes) {
    return std::accumulate(shapes.begin(), shapes.end(), 0.0,
                           [](double sum, const auto &shape) { return sum + shape->area(); });
}

void sort_numbers(std::vector<std::uint64_t> &numbers, std::uint64_t &state) {
    for (auto &number : numbers) number = next(state);
    std::sort(numbers.begin(), numbers.end(), [](auto a, auto b) { return a % 1000003 < b % 1000003; });
}

} // namespace

int main(int argc, char **argv) {
    const int rounds = argc > 1 ? std::atoi(argv[1]) : 100;
    std::uint64_t state = 88172645463325252ULL;
    std::vector<std::unique_ptr<geometry::Shape>> shapes;
    for (int i = 0; i < 2000; ++i) {
        if (i % 3 == 0) shapes.push_back(std::make_unique<geometry::Square<int>>(i));
        else if (i % 3 == 1) shapes.push_back(std::make_unique<geometry::Square<double>>(i * 0.5));
        else shapes.push_back(std::make_unique<geometry::Polygon>(std::vector<std::pair<double, double>>(
                 8, {static_cast<double>(i), static_cast<double>(i % 7)})));
    }
    std::vector<std::uint64_t> numbers(30000);
    double sum = 0;
    for (int round = 0; round < rounds; ++round) {
        std::map<std::string, int> words;
        sum += static_cast<double>(count_words(words, state));
        for (int i = 0; i < 300; ++i) sum += total_area(shapes);
        sort_numbers(numbers, state);
        sum += static_cast<double>(numbers[round % numbers.size()] % 10);
    }
    std::printf("%g\n", sum);
    return 0;
}
