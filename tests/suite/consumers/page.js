// Uses a page of `hpmctl explore --html` as people do, in a headless browser, and prints what it then shows, as a line of JSON for
// each step: `node page.js CHROMIUM NODE_MODULES SCREENSHOT PAGE`.
'use strict';

const path = require('path');

const [chromium, modules, screenshot, file] = process.argv.slice(2);
const puppeteer = require(path.join(modules, 'puppeteer-core'));

// What the page shows, as text and numbers.
const look = () => ({
  hash: location.hash,
  about: document.getElementById('about').textContent,
  whose: document.getElementById('whose').textContent,
  statistics: [...document.querySelectorAll('#statistics tr')].slice(1).map((row) => [...row.cells].map((cell) => cell.textContent)),
  correlation: document.getElementById('correlation').textContent,
  rows: document.querySelectorAll('#records tr').length - 1,
  found: [...document.querySelectorAll('#records tr.found')].map((row) => Number(row.dataset.record)),
  painted: ['time', 'threads', 'cpus', 'scatter'].map((id) => {
    const canvas = document.getElementById(id);
    const pixels = canvas.getContext('2d').getImageData(0, 0, canvas.width, canvas.height).data;
    let painted = 0;
    for (let i = 3; i < pixels.length; i += 4) painted += pixels[i] > 0;
    return painted;
  }),
});

(async () => {
  const browser = await puppeteer.launch({ executablePath: chromium, headless: 'shell', args: ['--no-sandbox', '--disable-gpu'] });
  const page = await browser.newPage();
  const errors = [];
  page.on('pageerror', (error) => errors.push(String(error)));
  page.on('request', (request) => { if (!request.url().startsWith('file://')) errors.push(`it asked for ${request.url()}`); });
  await page.setViewport({ width: 1000, height: 1150 });
  await page.goto(`file://${path.resolve(file)}`);
  const say = async (step) => console.log(JSON.stringify({ step, errors, ...(await page.evaluate(look)) }));
  const box = async (id) => (await page.$(`#${id}`)).boundingBox();
  await say('opened');

  const time = await box('time');
  const at = (share) => time.x + 110 + share * (time.width - 122);
  await page.mouse.move(at(0.5), time.y + 60);
  await page.mouse.wheel({ deltaY: -400 });
  await say('zoomed');

  await page.mouse.move(at(0.25), time.y + 60);
  await page.mouse.down();
  await page.mouse.move(at(0.75), time.y + 60);
  await page.mouse.up();
  await say('selected');
  await page.screenshot({ path: screenshot });

  await page.click('#records tr:nth-child(3)');
  await say('row clicked');

  await page.click('#none');
  await page.click('#out');
  const lanes = await box('cpus');
  await page.mouse.click(at(0.5), lanes.y + 8);
  await say('lane clicked');
  await browser.close();
})().catch((error) => { console.error(String(error)); process.exit(1); });
