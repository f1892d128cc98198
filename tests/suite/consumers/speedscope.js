// Opens exported files in speedscope in a headless browser and prints, for each, a line of JSON with the profiles it found and
// their total weights: `node speedscope.js CHROMIUM NODE_MODULES SCREENSHOTS FILE…`.
'use strict';

const fs = require('fs');
const path = require('path');

const [chromium, modules, screenshots, ...files] = process.argv.slice(2);
const puppeteer = require(path.join(modules, 'puppeteer-core'));

// speedscope's own command line hands a file over by such a script and this address.
function address(file) {
  const content = fs.readFileSync(file).toString('base64');
  const script = path.resolve(screenshots, `${path.basename(file)}.js`);
  fs.writeFileSync(script, `speedscope.loadFileFromBase64(${JSON.stringify(path.basename(file))}, "${content}")`);
  return `file://${path.join(modules, 'speedscope/dist/release/index.html')}#localProfilePath=${script}`;
}

async function open(browser, file) {
  const page = await browser.newPage();
  const said = [];
  page.on('console', (message) => said.push(message.text()));
  page.on('dialog', (dialog) => { said.push(dialog.message()); dialog.dismiss(); });
  await page.setViewport({ width: 1000, height: 420 });
  await page.goto(address(path.resolve(file)));
  // The flame chart is there once the start page's text is gone.
  let opened = true;
  try {
    await page.waitForFunction(
      () => document.querySelector('canvas') && !document.body.innerText.includes('Drag and drop'), { timeout: 10000 });
  } catch { opened = false; }
  await new Promise((done) => setTimeout(done, 500));
  await page.screenshot({ path: path.join(screenshots, `speedscope-${path.basename(file)}.png`) });
  const text = await page.evaluate(() => document.body.innerText);
  await page.close();
  return { file: path.basename(file), opened, text: text.split('\n').filter(Boolean).slice(0, 12), said };
}

(async () => {
  const browser = await puppeteer.launch({
    executablePath: chromium,
    headless: 'shell',
    args: ['--no-sandbox', '--allow-file-access-from-files', '--disable-gpu', '--use-gl=angle', '--use-angle=swiftshader', '--enable-unsafe-swiftshader'],
  });
  for (const file of files) console.log(JSON.stringify(await open(browser, file)));
  await browser.close();
})().catch((error) => { console.error(String(error)); process.exit(1); });
