// A program of small functions that V8 compiles at run time, for `suite symbols`. It computes for some seconds.
'use strict';

function next(state) {
  state.value = (Math.imul(state.value, 1664525) + 1013904223) >>> 0;
  return state.value;
}

function expression(state, depth) {
  if (depth === 0 || next(state) % 5 === 0) return String(next(state) % 1000);
  const operator = '+-*'[next(state) % 3];
  return '(' + expression(state, depth - 1) + operator + expression(state, depth - 1) + ')';
}

class Parser {
  constructor(text) {
    this.text = text;
    this.at = 0;
  }

  number() {
    let value = 0;
    while (this.at < this.text.length) {
      const digit = this.text.charCodeAt(this.at) - 48;
      if (digit < 0 || digit > 9) break;
      value = value * 10 + digit;
      this.at++;
    }
    return value;
  }

  value() {
    if (this.text[this.at] !== '(') return this.number();
    this.at++;
    const left = this.value();
    const operator = this.text[this.at++];
    const right = this.value();
    this.at++;
    return apply(operator, left, right);
  }
}

function apply(operator, left, right) {
  switch (operator) {
    case '+': return (left + right) % 1000003;
    case '-': return (left - right) % 1000003;
    default: return (left * right) % 1000003;
  }
}

function sieve(limit) {
  const composite = new Uint8Array(limit);
  let primes = 0;
  for (let i = 2; i < limit; i++) {
    if (composite[i]) continue;
    primes++;
    for (let j = i * 2; j < limit; j += i) composite[j] = 1;
  }
  return primes;
}

const rounds = Number(process.argv[2] || 100);
const state = { value: 42 };
let total = 0;
for (let round = 0; round < rounds; round++) {
  for (let i = 0; i < 40; i++) total += new Parser(expression(state, 9)).value();
  total += sieve(100000);
}
console.log(total);
