// What the page uses of Chart.js, for the type check: Debian's package of it has none of its types.
declare module "chart.js" {
  export interface Scale { getPixelForValue(value: number): number; getValueForPixel(pixel: number): number | undefined }
  export interface ChartDataset<_Type extends string, Data> {
    label: string; data: Data; clip?: number; borderColor?: string; borderWidth?: number; pointRadius?: number | number[]; pointBackgroundColor?: string;
    spanGaps?: boolean; tension?: number;
  }
  export interface ScaleOptions {
    type: string; bounds?: string; min?: number; suggestedMin?: number; suggestedMax?: number;
    title?: { display?: boolean; text?: string; color?: string; padding?: number };
    grid?: { color?: string; drawBorder?: boolean; tickLength?: number };
    ticks?: { color?: string; maxRotation?: number; padding?: number; maxTicksLimit?: number; precision?: number; callback?: (value: number | string) => string };
  }
  export interface Configuration<Type extends string, Data> {
    type: Type;
    data: { datasets: ChartDataset<Type, Data>[] };
    options: {
      parsing?: boolean; normalized?: boolean; maintainAspectRatio?: boolean; events?: string[];
      scales?: Record<string, ScaleOptions | undefined>;
    };
  }
  export class Chart<Type extends string = string, Data = unknown> {
    constructor(canvas: HTMLCanvasElement, configuration: Configuration<Type, Data>);
    static register(...parts: unknown[]): void;
    static defaults: { animation: boolean; font: { family: string; size: number } };
    readonly ctx: CanvasRenderingContext2D;
    readonly chartArea: { left: number; right: number; top: number; bottom: number };
    readonly scales: Record<string, Scale>;
    data: Configuration<Type, Data>["data"];
    options: Configuration<Type, Data>["options"];
    update(mode?: string): void;
    draw(): void;
    destroy(): void;
  }
  export interface Plugin<Type extends string> { id: string; afterDatasetsDraw?(chart: Chart<Type>): void }
  export const LinearScale: unknown;
  export const LineController: unknown;
  export const LineElement: unknown;
  export const PointElement: unknown;
}
